"""l2d report [runs] [experiment=NAME] [group=choice ...]: tables, LaTeX and a page of what is finished."""

import time
from dataclasses import replace
from pathlib import Path

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser

from l2d.analysis.report.compare import summarise
from l2d.analysis.report.page import page
from l2d.analysis.report.read import Cell, read_cells
from l2d.analysis.report.tables import latex, markdown
from l2d.config import compose, sweep_axes, to_plain
from l2d.runs.folder import RunFolder
from l2d.utils.errors import L2DError
from l2d.utils.files import write_text
from l2d.utils.user_errors import answering

HELP = """Tables and plots of finished runs, read from their folders alone.

usage: l2d report [RUNS_DIR] [experiment=NAME] [group=choice,choice ...] [key=value ...]

RUNS_DIR defaults to runs. Without overrides: everything that is finished. With them: the cells that
`l2d train -m` with the same overrides runs, those still missing marked.

Writes RUNS_DIR/report/: index.html (open it in a browser), tables.md, tables.tex.

examples:
  l2d report
  l2d report runs experiment=table1_error
  l2d report runs experiment=table1_error dataset=digits setup=I,III seed=0,1,2"""


def chosen(runs_dir: Path, overrides: list[str], finished: list[Cell]) -> list[Cell]:
    """The cells that a sweep with these overrides has, with what is finished of them."""
    axes = sweep_axes(overrides)
    parsed = OverridesParser.create().parse_overrides([*(f"{key}={value}" for key, value in axes.items()), *overrides])
    found = {cell.names: cell for cell in finished}
    cells: dict[Path, Cell] = {}
    for given in BasicSweeper.split_arguments(parsed, None)[0]:
        without_seed = [text for text in given if not text.startswith("seed=")]
        [seed] = [int(text.removeprefix("seed=")) for text in given if text.startswith("seed=")] or [0]
        key = Path("|".join(without_seed))
        if key not in cells:
            folder = RunFolder.of(to_plain(compose([*without_seed, f"runs_dir={runs_dir}"]))).path.parent
            names = folder.relative_to(runs_dir).parts
            cells[key] = Cell(names, folder)  # type: ignore[arg-type]
        cells[key] = replace(cells[key], wanted=(*cells[key].wanted, seed))
    for cell in cells.values():
        runs = found[cell.names].runs if cell.names in found else {}
        cell.runs.update({seed: runs[seed] for seed in cell.wanted if seed in runs})
    return list({cell.names: cell for cell in cells.values()}.values())  # mild and mild_paper may be one and the same


def report(arguments: list[str]) -> str:
    """Write it, and say where."""
    started = time.monotonic()
    overrides = [argument for argument in arguments if "=" in argument]
    folders = [argument for argument in arguments if "=" not in argument and argument[0] != "-"] or ["runs"]
    if len(folders) > 1:
        raise L2DError(f"{folders[1]}: one folder of runs at a time")
    runs_dir = Path(folders[0]).expanduser()
    if not runs_dir.is_dir():
        raise L2DError(f"{runs_dir}: no such folder; l2d train makes runs/")
    for flag in (argument for argument in arguments if argument.startswith("-")):
        raise L2DError(f"{flag}: unknown flag; see l2d report --help")
    everything = read_cells(runs_dir)
    cells = chosen(runs_dir, overrides, everything) if overrides else everything
    if not any(cell.runs for cell in cells):
        others = sum(len(cell.runs) for cell in everything)
        hint = (
            f" of these; {others} finished with other settings (dry_run=true lists what is looked for)"
            if others
            else ""
        )
        raise L2DError(f"{runs_dir}: no finished run{hint}")
    entries = summarise(cells)
    out = runs_dir / "report"
    out.mkdir(exist_ok=True)
    title = " ".join(overrides) or str(runs_dir)
    write_text(out / "tables.md", markdown(entries))
    write_text(out / "tables.tex", latex(entries))
    write_text(out / "index.html", page(entries, cells, title))
    number, missing = sum(len(cell.runs) for cell in cells), sum(not cell.runs for cell in cells)
    return (
        f"{number} runs, {len(cells)} cells{f', {missing} of them without a finished run' if missing else ''};"
        f" {time.monotonic() - started:.1f} s\n{out / 'index.html'}\n{out / 'tables.md'}\n{out / 'tables.tex'}"
    )


def main(arguments: list[str]) -> None:
    with answering("interrupted; the same command begins anew"):
        print(HELP if {"-h", "--help"} & set(arguments) else report(arguments))
