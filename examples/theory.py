"""The paper's theory in numbers: python examples/theory.py consistency --p 0.55 0.45 --rho 1 0.3

The decisions of the surrogate's minimiser, and their regret.
"""

import argparse
import sys
from collections.abc import Sequence

import torch
from consistency import judge, worst_regret

from l2d.utils.errors import ParameterError
from l2d.utils.parameters import Positive, check_value
from l2d.utils.text import aligned
from l2d.utils.user_errors import OneLineParser, answering, given_as_flags

PROGRAM = "python examples/theory.py"
P, RHO = [0.55, 0.45], [1.0, 0.3]


def make_theory_parser() -> argparse.ArgumentParser:
    about = "decisions of the surrogate's minimiser for p(k|x) and rho, by argmax and by posterior, and their regret"
    example = f"example:\n  {PROGRAM} consistency --p 0.55 0.45 --rho 1 0.3"
    parser = OneLineParser(prog=PROGRAM, description="The paper's theory in numbers. See docs/theory.md.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    consistency = commands.add_parser("consistency", help=about, description=f"{about.capitalize()}.", epilog=example)
    rewards, margins = "conditional rewards, positive, with sum 1", "margins, one per expert"
    consistency.add_argument("--p", type=float, nargs="+", default=P, help=f"{rewards} (default: {_listed(P)})")
    consistency.add_argument("--rho", type=float, nargs="+", default=RHO, help=f"{margins} (default: {_listed(RHO)})")
    return parser


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
        for name in ("p", "rho"):
            check_value(f"--{name}", vars(options)[name], list[Positive])
        show_consistency(options)


if __name__ == "__main__":
    main(sys.argv[1:])
