"""l2d curve [FOLDER] [dataset=NAME ...]: error against price, of finished runs that differ in cost.scale."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from l2d.analysis.curve.measure import CurveGroup, find_groups, measure_group
from l2d.analysis.curve.show import curve_figure, curve_text
from l2d.analysis.curve.trace import trace_curve
from l2d.analysis.report.read import folder_among, read_cells
from l2d.config.identity import NAMED
from l2d.utils.errors import L2DError, unknown
from l2d.utils.files import write_atomically, write_json, write_text
from l2d.utils.text import aligned, csv_text
from l2d.utils.user_errors import OneLineParser, answering

if TYPE_CHECKING:
    from matplotlib.figure import Figure

USAGE = f"l2d curve [FOLDER] {' '.join(f'[{name}=NAME]' for name in NAMED)}\n       l2d curve RUN --promise CONFIDENCE"
DESCRIPTION = """Error against price on held-out rows, of finished runs that differ in cost.scale (and seed) alone, or of one
run whose method takes any prices afterwards (cost_regression, label_regression, plugin, and simple routers such as knn).

Writes FOLDER/curves/<name>/: curve.csv, curve.png, summary.json. What the numbers are: docs/llm_routing.md.
Of a run of method=plan: error against the prices of all calls, for each kind of plan. Writes curve.csv and curve.png into it."""
WORDS = "FOLDER: a folder of runs, any folder in it, or one run (default: runs). key=NAME: draw only runs of that name"
EXAMPLES = """examples:
  l2d train -m experiment=price_curve dataset=mmlu_sim                   ten multiples of the prices, three seeds
  l2d curve runs dataset=mmlu_sim"""


def wanted_groups(folder: Path, wanted: Mapping[str, str]) -> list[CurveGroup]:
    for key in wanted.keys() - {*NAMED}:
        raise L2DError(f"{key}={wanted[key]}: {unknown('key', key, NAMED)}")
    found = find_groups(read_cells(folder))
    groups = [group for group in found if wanted.items() <= dict(zip(NAMED, group.names, strict=True)).items()]
    if not groups:
        needed = "two finished runs that differ in cost.scale alone, or one whose method takes any prices"
        raise L2DError(f"{folder}: no curve to draw: needs {needed}; l2d train -m experiment=price_curve makes them")
    return groups


def draw_curves(words: Sequence[str]) -> str:
    folder, others = folder_among(words)
    drawn = []
    for group in wanted_groups(folder, dict(word.split("=", 1) for word in others)):
        if group.names[-1] == "plan":
            drawn += [draw_plans(cell.run_folder(seed)) for cell in group.cells.values() for seed in cell.runs]
            continue
        try:
            curve = trace_curve(group, measure_group(group))
        except L2DError as error:
            print(f"warning: {error}; left out", file=sys.stderr)
            continue
        out = folder / "curves" / group.name
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "summary.json", curve.summary)
        drawn.append(f"{curve_text(curve)}\n{write_curve(out, curve.marks, curve_figure(curve))}")
    if not drawn:
        raise L2DError(f"{folder}: nothing could be drawn")
    return "\n".join(drawn)


def draw_plans(run: Path) -> str:
    """Write curve.csv and curve.png into a run of method=plan; return where."""
    from l2d.router.plan_pictures import plan_curve_figure, plan_points
    from l2d.router.router import Router

    router = Router.load(run)
    points = plan_points(router)
    if not points:
        raise L2DError(f"{run}: its rows taught it no plan, so there is no curve; use method=auto")
    return write_curve(run, points, plan_curve_figure(points, router))


def draw_promises(words: Sequence[str], confidence: float) -> str:
    """Write promises.csv and promises.png into a run; return a table of them, and where."""
    from l2d.router.promises import promise_figure, promises
    from l2d.router.router import Router

    folder, others = folder_among(words)
    router = Router.load(folder)
    if others:
        raise L2DError(f"{others[0]}: --promise takes one run's folder")
    points = promises(router, confidence)
    rows = [[f"{one.max_error:.2%}", router.prices.short(one.price), f"{one.error:.2%}"] for one in points]
    place = write_curve(folder, points, promise_figure(points, router, confidence), "promises")
    return f"{aligned(['promised error', router.prices.mean_price, 'expected error'], rows)}\n{place}"


def write_curve(folder: Path, points: Sequence[Any], picture: "Figure", name: str = "curve") -> str:
    """points: dataclasses of one kind. Return where the picture is."""
    names = [field.name for field in fields(points[0])]
    write_text(folder / f"{name}.csv", csv_text([names, *map(astuple, points)]))
    write_atomically(folder / f"{name}.png", partial(picture.savefig, dpi=150))
    return f"{folder / name}.png\n"


def main(arguments: list[str]) -> None:
    parser = OneLineParser(prog="l2d curve", usage=USAGE, description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument("words", nargs="*", metavar="FOLDER, key=NAME", help=WORDS)
    promised = "instead, what each promised error costs in one run, kept with this confidence, such as 0.95"
    parser.add_argument("--promise", metavar="CONFIDENCE", type=float, help=promised)
    with answering("interrupted; the same command starts again"):
        given = parser.parse_args(arguments)
        words, confidence = given.words, given.promise
        print(draw_curves(words) if confidence is None else draw_promises(words, confidence))
