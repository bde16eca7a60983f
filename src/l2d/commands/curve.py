"""l2d curve [runs] [group=name ...]: error against price, of finished runs that differ in cost.scale."""

import sys
from pathlib import Path

from l2d.analysis.curve.evaluate import Curve, evaluate
from l2d.analysis.curve.groups import Group, find_groups, load
from l2d.analysis.curve.show import as_csv, as_text, figure
from l2d.analysis.report.read import read_cells
from l2d.utils.errors import L2DError
from l2d.utils.files import write_atomically, write_json, write_text
from l2d.utils.user_errors import answering

NAMES = ("dataset", "setup", "experts", "cost", "method")
HELP = """Error against price on the test split, of finished runs that differ in cost.scale (and seed) alone, or of one whose method
takes any prices (cost_regression, label_regression, plugin).

usage: l2d curve [RUNS_DIR] [dataset=NAME] [setup=NAME] [experts=NAME] [cost=NAME] [method=NAME]

RUNS_DIR defaults to runs; names, as in the run folders, narrow down what is drawn.

Writes RUNS_DIR/curves/<name>/: curve.csv, curve.png, summary.json. What the numbers are: docs/llm_routing.md.

examples:
  l2d train -m experiment=price_curve dataset=mmlu_sim                   ten multiples of the prices, three seeds
  l2d train -m experiment=price_curve dataset=mmlu_sim method=one_vs_all cost.scale=0
  l2d curve runs dataset=mmlu_sim"""


def write(folder: Path, curve: Curve) -> None:
    """summary.json comes last."""
    folder.mkdir(parents=True, exist_ok=True)
    picture = figure(curve)
    write_text(folder / "curve.csv", as_csv(curve))
    write_atomically(folder / "curve.png", lambda path: picture.savefig(path, dpi=150))
    write_json(folder / "summary.json", curve.summary)


def chosen(runs_dir: Path, wanted: dict[str, str]) -> list[Group]:
    groups = [
        group
        for group in find_groups(read_cells(runs_dir))
        if all(group.names[NAMES.index(key)] == name for key, name in wanted.items())
    ]
    if not groups:
        of = "".join(f" {key}={name}" for key, name in wanted.items())
        raise L2DError(
            f"{runs_dir}: no two finished runs{of} that differ in cost.scale alone, nor one of cost_regression and its kin;"
            " l2d train -m experiment=price_curve makes them"
        )
    return groups


def parse(arguments: list[str]) -> tuple[Path, dict[str, str]]:
    wanted = {}
    folders = [
        text for text in arguments if "=" not in text or (text.split("=")[0] not in NAMES and Path(text).is_dir())
    ]
    for argument in (text for text in arguments if text not in folders):
        key, _, name = argument.partition("=")
        if key not in NAMES:
            raise L2DError(f"{argument}: unknown; choose by {', '.join(f'{name}=' for name in NAMES)}")
        wanted[key] = name
    for flag in (text for text in folders if text.startswith("-")):
        raise L2DError(f"{flag}: unknown flag; see l2d curve --help")
    if len(folders) > 1:
        raise L2DError(f"{folders[1]}: one folder of runs at a time")
    runs_dir = Path(*folders or ["runs"]).expanduser()
    if (runs_dir / "metrics.json").exists():
        raise L2DError(f"{runs_dir}: is one run; give the folder that all are in, such as runs, and choose by method=")
    if not runs_dir.is_dir():
        raise L2DError(f"{runs_dir}: no such folder; l2d train makes runs/")
    return runs_dir, wanted


def draw(arguments: list[str]) -> None:
    runs_dir, wanted = parse(arguments)
    drawn = []
    for group in chosen(runs_dir, wanted):
        try:
            curve = evaluate(group, load(group))
        except L2DError as error:
            print(f"warning: {error}; left out", file=sys.stderr)
            continue
        for name, cell in group.repriced.items():
            if name not in curve.summary["repriced"] and cell.config()["cost"].get("prices") == "columns":
                print(
                    f"{cell.folder}: has cost.prices=columns, so it takes no other prices: a point, no curve",
                    file=sys.stderr,
                )
        folder = runs_dir / "curves" / group.name
        write(folder, curve)
        drawn.append(f"{as_text(curve)}\n{folder / 'curve.png'}\n")
    if not drawn:
        raise L2DError(f"{runs_dir}: nothing could be drawn")
    print("\n".join(drawn))  # at the end: a reader that goes away leaves no curve undrawn


def main(arguments: list[str]) -> None:
    with answering("interrupted; the same command begins anew"):
        if {"-h", "--help"} & set(arguments):
            print(HELP)
        else:
            draw(arguments)
