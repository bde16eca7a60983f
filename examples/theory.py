"""The paper's theory in numbers: python examples/theory.py consistency --p 0.55 0.45 --rho 1 0.3

bound: the margin bound for the router of a finished run. consistency: the regret of its decision rule. --help shows the flags.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
from annotated_types import Ge
from consistency import judge, worst_regret
from linear_router import load_linear_router
from router_bound import bound_report, bound_text

from l2d.utils.errors import ParameterError
from l2d.utils.own_modules import look_in
from l2d.utils.parameters import Positive, ProperShare, Seed, check_value
from l2d.utils.text import aligned
from l2d.utils.user_errors import OneLineParser, answering, given_as_flags

PROGRAM = "python examples/theory.py"
P, RHO = [0.55, 0.45], [1.0, 0.3]
# The values that each flag may have.
KINDS: dict[str, Any] = {"rho": list[Positive], "p": list[Positive], "delta": ProperShare, "ceiling": Positive}
KINDS |= {"draws": Annotated[int, Ge(2)], "seed": Seed}


def make_theory_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog=PROGRAM,
        description="The paper's theory in numbers. See docs/theory.md.",
        epilog=f"{PROGRAM} COMMAND --help shows the flags of a command.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    _add_bound(commands)
    _add_consistency(commands)
    return parser


def _add_bound(commands: Any) -> None:
    parser = commands.add_parser(
        "bound",
        help="the margin bound of Theorem 4.1 and Corollary 4.2 for the router of a finished run, term by term",
        description="The margin bound of Theorem 4.1 and Corollary 4.2 for the router of a finished run, term by term.",
        epilog=f"example:\n  {PROGRAM} bound runs/digits/III/synthetic/error/mild/1a2b3c4d/seed=0 --rho 5.2 --draws 500",
    )
    add = parser.add_argument
    add("run", metavar="RUN", type=Path, help="the folder of a finished run, runs/<dataset>/.../seed=<s>")
    add("--rho", type=float, nargs="+", help="margins: one for all experts, or one per expert (default: the method's)")
    add("--rewards", choices=("sum_others", "complement"), help="the rewards c̄_k (default: the method's)")
    add("--delta", type=float, default=0.05, help="the bound holds with probability 1 - DELTA (default: %(default)s)")
    add("--ceiling", type=float, default=6.0, help="largest rho of the bound uniform in rho (default: %(default)s)")
    add("--draws", type=int, default=200, help="random signs for the Rademacher complexity (default: %(default)s)")
    add("--seed", type=int, default=0, help="seed of the random signs (default: %(default)s)")
    add("--data-dir", metavar="DIR", help="where the data are now, if they were moved since the run")
    add("--runs-dir", metavar="DIR", help="where the runs are now, if they were moved since the run")
    trusted = "build classes of this module too, if the run uses them"
    add("--trust", metavar="MODULE", action="append", default=[], help=trusted)
    parser.set_defaults(does=show_bound)


def _add_consistency(commands: Any) -> None:
    about = "decisions of the surrogate's minimiser for p(k|x) and rho, by argmax and by posterior, and their regret"
    example = f"example:\n  {PROGRAM} consistency --p 0.55 0.45 --rho 1 0.3"
    parser = commands.add_parser("consistency", help=about, description=f"{about.capitalize()}.", epilog=example)
    rewards, margins = "conditional rewards, positive, with sum 1", "margins, one per expert"
    parser.add_argument("--p", type=float, nargs="+", default=P, help=f"{rewards} (default: {_listed(P)})")
    parser.add_argument("--rho", type=float, nargs="+", default=RHO, help=f"{margins} (default: {_listed(RHO)})")
    parser.set_defaults(does=show_consistency)


def show_bound(options: argparse.Namespace) -> None:
    given = vars(options)
    places = {key: given[key] for key in ("data_dir", "runs_dir") if given[key] is not None}
    if options.trust:
        look_in(str(Path.cwd()))
    router = load_linear_router(options.run.expanduser(), places, options.trust)
    chosen = {key: given[key] for key in ("rho", "rewards", "delta", "ceiling", "draws", "seed")}
    with given_as_flags():
        report = bound_report(router, **chosen)
    print(bound_text(report, router))


def show_consistency(options: argparse.Namespace) -> None:
    """One expert per column; the last column is the excess deferral loss in units of C(x)."""
    if abs(sum(options.p) - 1) > 1e-6:
        raise ParameterError("--p", f"the sum is {sum(options.p):g}, not 1", _listed(options.p))
    if len(options.p) != len(options.rho):
        problem = f"{len(options.p)} values for {len(options.rho)} margins in --rho"
        raise ParameterError("--p", problem, _listed(options.p))
    p, rho = (torch.tensor(values, dtype=torch.float64) for values in (options.p, options.rho))
    with given_as_flags():
        found = judge(p[None], rho)
    rows = {"p(k|x)": p, "ρ": rho, "p/ρ": p / rho, "minimiser f": found.scores[0], "posterior": found.posterior[0]}
    table = [[name, *(f"{value:.4g}" for value in values.tolist())] for name, values in rows.items()]
    print(aligned(["expert", *(str(k + 1) for k in range(len(p)))], table), end="\n\n")
    decisions = {
        "best (argmax p)": (found.optimal, torch.zeros(1)),
        "argmax f (the paper's)": (found.argmax, found.argmax_regret),
        "posterior": (found.by_posterior, found.posterior_regret),
    }
    shown = [[name, str(int(chosen) + 1), f"{float(lost):.4f}"] for name, (chosen, lost) in decisions.items()]
    print(aligned(["decision", "expert", "regret/C(x)"], shown))
    print(f"largest regret of argmax f over all p: {worst_regret(rho):.4f}·C(x)")


def _listed(values: Sequence[float]) -> str:
    return " ".join(f"{value:g}" for value in values)


def main(arguments: list[str]) -> None:
    with answering():
        parser = make_theory_parser()
        options = parser.parse_args(arguments)
        if options.command is None:
            parser.print_help()
            return
        for name, value in vars(options).items():
            if name in KINDS and value is not None:
                check_value(f"--{name}", value, KINDS[name])
        options.does(options)


if __name__ == "__main__":
    main(sys.argv[1:])
