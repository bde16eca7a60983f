"""l2d theory bound|consistency|simplex|figure1: what the paper proves, what it does not, in numbers and pictures."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor
from tqdm import tqdm

from l2d.analysis.theory import evaluate, figure1, simplex
from l2d.analysis.theory.consistency import Verdict, judge, worst_regret
from l2d.analysis.theory.trained import load
from l2d.commands.theory_options import DEFAULTS, HELP, distribution, numbers, parse, picture_path
from l2d.runs.summary import aligned
from l2d.utils.errors import L2DError
from l2d.utils.files import write_atomically
from l2d.utils.seeding import stream
from l2d.utils.user_errors import answering


def write_picture(path: Path, picture: Figure) -> None:
    write_atomically(path, lambda temporary: picture.savefig(temporary, dpi=150))
    print(path)


def bound(run: str, options: Mapping[str, Any]) -> None:
    places = {key: options[key] for key in ("data_dir", "runs_dir") if options[key] is not None}
    trained = load(Path(run).expanduser(), places)
    print(evaluate.describe(evaluate.evaluate(trained, options), trained))


def consistency(options: Mapping[str, Any]) -> None:
    if options["random"]:
        return random_cases(options["random"], options["experts"], options["seed"])
    rho = numbers("rho", options["rho"])
    p = distribution(options["p"], len(rho))
    verdict = judge(p[None], rho)
    rows = [
        ["p(k|x)", *_row(p)],
        ["ρ", *_row(rho)],
        ["minimiser f", *_row(verdict.scores[0])],
        ["p/ρ", *_row(p / rho)],
        ["posterior p̂", *_row(verdict.posterior[0])],
    ]
    print(aligned(["expert", *(str(k + 1) for k in range(len(p)))], rows))
    print(f"\nsurrogate at f: {float(verdict.surrogate[0]):.6f}; largest gradient: {float(verdict.gradient[0]):.1e}\n")
    print(aligned(["decision", "expert", "excess deferral loss/C(x)"], _decisions(verdict)))
    print(f"\n{_conclusion(verdict)}\n{_general(rho)}")
    return None


def random_cases(number: int, experts: int, seed: int) -> None:
    """p uniform on the simplex, ρ log-uniform between 0.1 and 10."""
    rng = stream(seed, "consistency")
    rows, wrong = [], 0
    for _ in tqdm(range(number), desc="cases", leave=False, disable=None):
        p = torch.from_numpy(rng.dirichlet([1.0] * experts)).clamp(min=1e-9)
        rho = torch.from_numpy(10 ** rng.uniform(-1, 1, experts))
        verdict = judge((p / p.sum())[None], rho)
        wrong += float(verdict.argmax_regret[0]) > simplex.TIE
        chosen = [int(k) + 1 for k in (verdict.optimal, verdict.argmax, verdict.by_posterior)]
        regrets = [f"{float(regret):.4f}" for regret in (verdict.argmax_regret, verdict.posterior_regret)]
        rows.append([" ".join(_row(p)), " ".join(_row(rho)), *map(str, chosen), *regrets])
    print(aligned(["p(k|x)", "ρ", "best", "argmax", "posterior", "argmax's regret", "posterior's"], rows))
    print(f"\nargmax f misses the best expert in {wrong} of {number}")


def _decisions(verdict: Verdict) -> list[list[str]]:
    return [
        ["best (argmax p)", str(int(verdict.optimal) + 1), "0.0000"],
        ["argmax f, the paper's", str(int(verdict.argmax) + 1), f"{float(verdict.argmax_regret):.4f}"],
        ["posterior, argmax p̂", str(int(verdict.by_posterior) + 1), f"{float(verdict.posterior_regret):.4f}"],
    ]


def _conclusion(verdict: Verdict) -> str:
    if float(verdict.argmax_regret) > simplex.TIE:
        return (
            "counterexample to Theorem 5.1 and Corollaries 5.2, 5.3 as printed: the surrogate regret is 0, so they allow no excess,"
            f" but argmax f loses {float(verdict.argmax_regret):.4f}·C(x)"
        )
    return "here argmax f is the best expert"


def _general(rho: Tensor) -> str:
    return (
        "proven (docs/theory.md): argmax f = argmax p/ρ at the minimiser, so over all p argmax loses up to"
        f" (ρ_max − ρ_min)/(ρ_max + ρ_min) = {worst_regret(rho):.4f} times C(x); the posterior decision loses nothing"
    )


def draw_simplex(options: Mapping[str, Any]) -> None:
    path, rho = picture_path(options["out"]), numbers("rho", options["rho"])
    if len(rho) != 3:
        raise L2DError(f"rho={options['rho']}: the simplex is for three experts")
    marked = None if options["p"] is None else distribution(options["p"], 3)[None]
    found = simplex.regions(rho, options["size"])
    print(
        f"argmax f is not the best expert on {found.wrong:.1%} of the simplex, posterior on {found.wrong_by_posterior:.1%}"
    )
    print(
        f"the most that argmax loses at these {len(found.corners)} points: {float(found.verdict.argmax_regret.max()):.4f}·C(x)"
    )
    print(_general(rho))
    write_picture(path, simplex.figure(rho, found, marked))


def draw_figure1(options: Mapping[str, Any]) -> None:
    path = picture_path(options["out"])
    offsets = options["offset"] if isinstance(options["offset"], list) else [options["offset"]]
    if not offsets or any(type(offset) not in (int, float) for offset in offsets):
        raise L2DError(f"offset={options['offset']}: must be a number, or a list of numbers")
    world = figure1.run(points=options["points"], steps=options["steps"], offsets=offsets, seed=options["seed"])
    print(f"m_k/m: {' '.join(_row(world.shares))}")
    for offset, rho in world.rho.items():
        print(f"MILD's ρ, offset {offset:g}: {' '.join(_row(rho))}")
    rows = [["optimum", f"{world.optimum:.4f}", "", f"{world.optimum:.4f}", ""]]
    rows += [
        [f"always expert {k + 1}", f"{loss:.4f}", f"{loss - world.optimum:+.4f}", "", ""]
        for k, loss in enumerate(figure1.expected_loss(torch.full((len(figure1.GRID),), k)) for k in range(3))
    ]
    rows += [
        [row.name, *(text for loss in (row.learned_loss, row.limit_loss) for text in _against(loss, world.optimum))]
        for row in world.rows
    ]
    print("\n" + aligned(["expected deferral loss, by quadrature", "learned", "excess", "minimiser", "excess"], rows))
    print(
        "\nlearned: a network on a sample, estimated from one seed. minimiser: where the surrogate is least, with all functions"
        "\nof x and endless data; an excess there is no accident of training but the surrogate's own: argmax f = argmax p/ρ.\n"
    )
    write_picture(path, figure1.figure(world))


def _against(loss: float, optimum: float) -> tuple[str, str]:
    return f"{loss:.4f}", f"{loss - optimum:+.4f}"


def _row(values: Tensor) -> list[str]:
    return [f"{value:.4g}" for value in values.tolist()]


COMMANDS: dict[str, Callable[[Mapping[str, Any]], None]] = {
    "consistency": consistency,
    "simplex": draw_simplex,
    "figure1": draw_figure1,
}


def run_command(arguments: list[str]) -> None:
    command, rest = arguments[0], arguments[1:]
    if command not in DEFAULTS:
        raise L2DError(f"{command}: unknown command; choose one of {', '.join(DEFAULTS)}")
    if command != "bound":
        COMMANDS[command](parse(command, rest))
        return
    # A run's folder ends in seed=0 and so looks like a setting: it is what has no key of ours before its first "=".
    runs = [text for text in rest if text.partition("=")[0] not in DEFAULTS["bound"]]
    if len(runs) != 1:
        raise L2DError(f"bound: takes one run's folder, runs/.../seed=<s>; got {' '.join(runs) or 'none'}")
    bound(runs[0], parse("bound", [text for text in rest if text not in runs]))


def main(arguments: list[str]) -> None:
    with answering():
        if not arguments or {"-h", "--help"} & set(arguments):
            print(HELP)
        else:
            run_command(arguments)
