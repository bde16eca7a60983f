"""l2d curve [FOLDER] [dataset=NAME ...]: error against price, of finished runs that differ in cost.scale."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from l2d.analysis.curve.groups import CurveGroup, find_groups
from l2d.analysis.curve.measure import measure_group
from l2d.analysis.curve.show import curve_csv, curve_figure, curve_text
from l2d.analysis.curve.trace import Curve, trace_curve
from l2d.analysis.report.read import folder_among, read_cells
from l2d.utils.errors import L2DError
from l2d.utils.files import write_atomically, write_json, write_text
from l2d.utils.user_errors import OneLineParser, answering

NAMES = ("dataset", "setup", "experts", "cost", "method")
DESCRIPTION = """Error against price on the test split, of finished runs that differ in cost.scale (and seed) alone, or of one
run whose method takes any prices afterwards (cost_regression, label_regression, plugin).

Writes FOLDER/curves/<name>/: curve.csv, curve.png, summary.json. What the numbers are: docs/llm_routing.md."""
EXAMPLES = """examples:
  l2d train -m experiment=price_curve dataset=mmlu_sim                   ten multiples of the prices, three seeds
  l2d train -m experiment=price_curve dataset=mmlu_sim method=one_vs_all cost.scale=0
  l2d curve runs dataset=mmlu_sim
  l2d curve runs/.../seed=0                                              one run of such a method"""


def curve_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="l2d curve",
        usage=f"l2d curve [FOLDER] {' '.join(f'[{name}=NAME]' for name in NAMES)}",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="FOLDER, key=NAME",
        help="FOLDER: a folder of runs, any folder in it, or one run (default: runs). key=NAME: draw only runs of that name",
    )
    return parser


def wanted_names(words: Sequence[str]) -> dict[str, str]:
    wanted = {}
    for word in words:
        key, _, name = word.partition("=")
        if key not in NAMES:
            raise L2DError(f"{word}: unknown key; choose by {', '.join(f'{name}=' for name in NAMES)}")
        wanted[key] = name
    return wanted


def wanted_groups(folder: Path, wanted: Mapping[str, str]) -> list[CurveGroup]:
    groups = [
        group
        for group in find_groups(read_cells(folder))
        if all(group.names[NAMES.index(key)] == name for key, name in wanted.items())
    ]
    if not groups:
        of = "".join(f" {key}={name}" for key, name in wanted.items())
        raise L2DError(
            f"{folder}: no curve to draw: needs two finished runs{of} that differ in cost.scale alone, or one whose method takes"
            " any prices; l2d train -m experiment=price_curve makes them"
        )
    return groups


def draw_curve(group: CurveGroup) -> Curve:
    measured = measure_group(group)
    for name in group.repriced.keys() - measured.expected.keys():
        print(
            f"{group.repriced[name].folder}: prices differ between rows and were learned with the errors, so it takes no other"
            " prices: a point, no curve",
            file=sys.stderr,
        )
    return trace_curve(group, measured)


def write_curve(folder: Path, curve: Curve) -> None:
    """summary.json comes last."""
    folder.mkdir(parents=True, exist_ok=True)
    picture = curve_figure(curve)
    write_text(folder / "curve.csv", curve_csv(curve))
    write_atomically(folder / "curve.png", lambda path: picture.savefig(path, dpi=150))
    write_json(folder / "summary.json", curve.summary)


def draw_curves(words: Sequence[str]) -> str:
    """Draw what can be drawn, and say where it is."""
    folder, others = folder_among(words)
    drawn = []
    for group in wanted_groups(folder, wanted_names(others)):
        try:
            curve = draw_curve(group)
        except L2DError as error:
            print(f"warning: {error}; left out", file=sys.stderr)
            continue
        out = folder / "curves" / group.name
        write_curve(out, curve)
        drawn.append(f"{curve_text(curve)}\n{out / 'curve.png'}\n")
    if not drawn:
        raise L2DError(f"{folder}: nothing could be drawn")
    return "\n".join(drawn)


def main(arguments: list[str]) -> None:
    with answering("interrupted; the same command starts again"):
        print(draw_curves(curve_parser().parse_args(arguments).words))
