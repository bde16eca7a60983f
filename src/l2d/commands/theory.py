"""l2d theory bound|consistency|readings|simplex|figure1: what the paper proves, and where it fails, in numbers and pictures."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, MinLen

from l2d.utils.errors import ParameterError
from l2d.utils.files import write_atomically
from l2d.utils.own_modules import look_in
from l2d.utils.parameters import Count, NonNegative, NonNegativeInt, Positive, ProperShare, Seed, check_value
from l2d.utils.user_errors import OneLineParser, answering, given_as_flags

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

P, RHO = [0.55, 0.45], [1.0, 0.3]
PICTURES = (".png", ".pdf", ".svg")
# What each flag may be.
KINDS: dict[str, Any] = {
    "rho": list[Positive],
    "p": list[Positive],
    "offset": list[NonNegative],
    "delta": ProperShare,
    "ceiling": Positive,
    "draws": Annotated[int, Ge(2)],
    "random": NonNegativeInt,
    "experts": Annotated[int, Ge(2)],
    "size": Annotated[int, Ge(2)],
    "classes": Annotated[int, Ge(2)],
    "coverage": Annotated[list[Positive], MinLen(2)],
    "prices": list[NonNegative],
    "total": Positive,
    "points": Annotated[int, Ge(10)],
    "steps": Count,
    "seed": Seed,
}


def make_theory_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="l2d theory",
        description="The paper's theory in numbers: what is proven, where it fails, what is estimated. See docs/theory.md.",
        epilog="l2d theory COMMAND --help shows the flags of a command.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    _add_bound(commands)
    _add_consistency(commands)
    _add_readings(commands)
    _add_simplex(commands)
    _add_figure1(commands)
    return parser


def _add_bound(commands: Any) -> None:
    parser = commands.add_parser(
        "bound",
        help="the margin bound of Theorem 4.1 and Corollary 4.2 for the router of a finished run, term by term",
        description="The margin bound of Theorem 4.1 and Corollary 4.2 for the router of a finished run, term by term.",
        epilog="example:\n  l2d theory bound runs/digits/III/synthetic/error/mild/1a2b3c4d/seed=0 --rho 5.2 --draws 500",
    )
    parser.add_argument(
        "run", metavar="RUN", type=Path, help="the folder of a finished run, runs/<dataset>/.../seed=<s>"
    )
    parser.add_argument(
        "--rho",
        type=float,
        nargs="+",
        help="margins: one for all experts, or one per expert (default: the method's own)",
    )
    parser.add_argument(
        "--rewards", choices=("sum_others", "complement"), help="the rewards c̄_k (default: the method's own)"
    )
    parser.add_argument(
        "--delta", type=float, default=0.05, help="the bound holds with probability 1 - DELTA (default: %(default)s)"
    )
    parser.add_argument(
        "--ceiling", type=float, default=6.0, help="the largest rho of the bound uniform in rho (default: %(default)s)"
    )
    parser.add_argument(
        "--draws", type=int, default=200, help="random signs for the Rademacher complexity (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random signs (default: %(default)s)")
    parser.add_argument("--data-dir", metavar="DIR", help="where the data are now, if they were moved since the run")
    parser.add_argument("--runs-dir", metavar="DIR", help="where the runs are now, if they were moved since the run")
    parser.add_argument(
        "--trust",
        metavar="MODULE",
        action="append",
        default=[],
        help="build classes of this module too, if the run uses them",
    )
    parser.set_defaults(does=show_bound)


def _add_consistency(commands: Any) -> None:
    parser = commands.add_parser(
        "consistency",
        help="what the surrogate's minimiser decides for p(k|x) and rho, by argmax and by posterior, and its regret",
        description="What the surrogate's minimiser decides for given p(k|x) and rho, by argmax and by posterior, and its regret.",
        epilog="examples:\n  l2d theory consistency --p 0.55 0.45 --rho 1 0.3\n"
        "  l2d theory consistency --random 5 --experts 4 --seed 1",
    )
    parser.add_argument(
        "--p", type=float, nargs="+", help=f"conditional rewards, positive, with sum 1 (default: {_listed(P)})"
    )
    parser.add_argument("--rho", type=float, nargs="+", help=f"margins, one per expert (default: {_listed(RHO)})")
    parser.add_argument(
        "--random", type=int, metavar="N", default=0, help="N random p and rho instead of --p and --rho (default: 0)"
    )
    parser.add_argument("--experts", type=int, default=3, help="number of experts with --random (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of --random (default: %(default)s)")
    parser.set_defaults(does=show_consistency)


def _add_readings(commands: Any) -> None:
    parser = commands.add_parser(
        "readings",
        help="both readings of m_k, the rho that follow, and what MILD does with them at the minimum of its loss",
        description="m_k is either the reward mass of expert k or how often k is the cheapest. For the synthetic experts of a"
        " setup: the shares of m_k, the rho that follow, and the expected deferral loss at the exact minimum of MILD's loss.",
        epilog="example, setup III on ten equally frequent classes:\n"
        "  l2d theory readings --coverage 0.4 0.2 0.2 0.1 0.1 --classes 10",
    )
    parser.add_argument(
        "--coverage",
        type=float,
        nargs="+",
        default=[0.4, 0.2, 0.2, 0.1, 0.1],
        help="share of the classes that each expert knows (default: setup III, 0.4 0.2 0.2 0.1 0.1)",
    )
    parser.add_argument("--classes", type=int, default=10, help="number of classes (default: %(default)s)")
    parser.add_argument("--prices", type=float, nargs="+", help="price of each expert (default: none)")
    parser.add_argument(
        "--total", type=float, default=1.0, help="rho_k = TOTAL * share_k + OFFSET (default: %(default)g)"
    )
    parser.add_argument("--offset", type=float, nargs="+", default=[0.0, 5.0], help="OFFSET of rho (default: 0 5)")
    parser.set_defaults(does=show_readings)


def _add_simplex(commands: Any) -> None:
    parser = commands.add_parser(
        "simplex",
        help="a picture of both decisions over all p of three experts",
        description="A picture of what argmax and posterior decide at the surrogate's minimiser, over all p of three experts.",
        epilog="example:\n  l2d theory simplex --rho 1 0.6 0.3 --out simplex.png",
    )
    parser.add_argument(
        "--rho", type=float, nargs=3, default=[1.0, 0.6, 0.3], help="margins of the experts (default: 1 0.6 0.3)"
    )
    parser.add_argument("--p", type=float, nargs=3, help="a point to mark: three positive numbers with sum 1")
    parser.add_argument("--size", type=int, default=60, help="triangles along an edge (default: %(default)s)")
    parser.add_argument("--out", metavar="FILE", default="simplex.png", help="the picture (default: %(default)s)")
    parser.set_defaults(does=draw_simplex)


def _add_figure1(commands: Any) -> None:
    parser = commands.add_parser(
        "figure1",
        help="Figure 1 as a 1-D world: TDEF and MILD trained on a sample of it and compared with the optimum",
        description="Figure 1 as a 1-D world: TDEF and MILD trained on a sample of it (about 30 s) and compared with the optimum.",
        epilog="example:\n  l2d theory figure1 --offset 0 5 --out figure1.png",
    )
    parser.add_argument(
        "--offset",
        type=float,
        nargs="+",
        default=[0.0, 5.0],
        help="offsets of MILD's rho: 0 is the theory's own, 5 the top of the paper's search (default: 0 5)",
    )
    parser.add_argument("--points", type=int, default=2000, help="points of the sample (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=300, help="training steps (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of sample and weights (default: %(default)s)")
    parser.add_argument("--out", metavar="FILE", default="figure1.png", help="the picture (default: %(default)s)")
    parser.set_defaults(does=draw_figure1)


def show_bound(options: argparse.Namespace) -> None:
    from l2d.analysis.theory.linear_router import load_linear_router
    from l2d.analysis.theory.router_bound import bound_report, bound_text

    places = {key: getattr(options, key) for key in ("data_dir", "runs_dir") if getattr(options, key) is not None}
    if options.trust:
        look_in(str(Path.cwd()))
    router = load_linear_router(options.run.expanduser(), places, options.trust)
    chosen = {key: getattr(options, key) for key in ("rho", "rewards", "delta", "ceiling", "draws", "seed")}
    with given_as_flags():
        report = bound_report(router, **chosen)
    print(bound_text(report, router))


def show_consistency(options: argparse.Namespace) -> None:
    if options.random and (options.p is not None or options.rho is not None):
        raise ParameterError("--random", "draws p and rho itself; leave out --p and --rho", options.random)
    p, rho = options.p or P, options.rho or RHO
    check_distribution(p, len(rho))
    from l2d.analysis.theory.consistency_text import consistency_text, random_cases_text

    if options.random:
        print(random_cases_text(options.random, options.experts, options.seed))
        return
    with given_as_flags():
        print(consistency_text(_tensor(p), _tensor(rho)))


def show_readings(options: argparse.Namespace) -> None:
    if abs(sum(options.coverage) - 1) > 1e-6:
        raise ParameterError("--coverage", f"the sum is {sum(options.coverage):g}, not 1", _listed(options.coverage))
    if options.prices is not None and len(options.prices) != len(options.coverage):
        problem = f"{len(options.prices)} values for {len(options.coverage)} experts in --coverage"
        raise ParameterError("--prices", problem, _listed(options.prices))
    if round(min(options.coverage) * options.classes) < 1:
        raise ParameterError("--classes", "an expert would know none of them; raise it", options.classes)
    from l2d.analysis.theory.readings import readings, readings_text

    found = readings(
        options.coverage, options.classes, prices=options.prices, total=options.total, offsets=options.offset
    )
    print(readings_text(found))


def draw_simplex(options: argparse.Namespace) -> None:
    path = picture_path(options.out)
    if options.p is not None:
        check_distribution(options.p, 3)
    from l2d.analysis.theory.simplex import simplex_figure, simplex_regions, simplex_text

    rho = _tensor(options.rho)
    with given_as_flags():
        found = simplex_regions(rho, options.size)
    print(simplex_text(rho, found))
    write_picture(path, simplex_figure(rho, found, None if options.p is None else _tensor([options.p])))


def draw_figure1(options: argparse.Namespace) -> None:
    path = picture_path(options.out)
    from l2d.analysis.theory.figure1 import figure1_picture, figure1_text, figure1_world

    world = figure1_world(points=options.points, steps=options.steps, offsets=options.offset, seed=options.seed)
    print(figure1_text(world))
    write_picture(path, figure1_picture(world))


def check_distribution(p: Sequence[float], experts: int) -> None:
    if abs(sum(p) - 1) > 1e-6:
        raise ParameterError("--p", f"the sum is {sum(p):g}, not 1", _listed(p))
    if len(p) != experts:
        raise ParameterError("--p", f"{len(p)} values for {experts} margins in --rho", _listed(p))


def picture_path(out: str) -> Path:
    """Checked before the picture is computed."""
    path = Path(out).expanduser()
    if path.suffix not in PICTURES:
        raise ParameterError("--out", f"must end in {', '.join(PICTURES)}", out)
    if not path.absolute().parent.is_dir():
        raise ParameterError("--out", f"there is no folder {path.parent}", out)
    return path


def write_picture(path: Path, picture: "Figure") -> None:
    write_atomically(path, lambda temporary: picture.savefig(temporary, dpi=150))
    print(path)


def _tensor(values: Sequence[float] | Sequence[Sequence[float]]) -> "Tensor":
    import torch

    return torch.tensor(values, dtype=torch.float64)


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
