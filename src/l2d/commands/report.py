"""l2d report [FOLDER] [experiment=NAME] [key=value ...]: tables, LaTeX and a page of finished runs."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from l2d.analysis.report.compare import findings_of, sentence, summarise
from l2d.analysis.report.paper import PAPER
from l2d.analysis.report.read import FinishedCell, folder_among, read_cells, with_tuned
from l2d.analysis.report.tables import html_page, latex_tables, markdown_findings, markdown_tables
from l2d.analysis.report.verdicts import measured_in, verdicts_page
from l2d.config import titles
from l2d.utils.errors import L2DError
from l2d.utils.files import write_text
from l2d.utils.text import counted
from l2d.utils.user_errors import OneLineParser, answering

SHOWN = 10  # findings on the terminal; the page has all
USAGE = "l2d report [FOLDER] [experiment=NAME] [group=choice,choice ...] [key=value ...]"
DESCRIPTION = """Tables and plots of finished runs, read from their folders alone.

Writes FOLDER/report/: index.html (open it in a browser), tables.md and tables.tex. If runs are of the paper's
experiments, also verdicts.md: each number of the paper beside ours. FOLDER/paper.csv may have another paper's numbers."""
WORDS = """FOLDER: a folder of runs, any folder in it, or one run (default: runs). key=value: as for l2d train -m; only the cells of
that sweep are shown (default: all finished runs)"""
EXAMPLES = """examples:
  l2d report                                     everything in runs/
  l2d report runs/svhn/III                       one setup
  l2d report runs experiment=table1_error dataset=digits setup=I,III seed=0,1,2"""


def cells_of_sweep(overrides: Sequence[str], finished: Sequence[FinishedCell], root: Path) -> list[FinishedCell]:
    """The cells of the sweep that `l2d train -m` with these overrides runs, with what is finished of them. root: its runs_dir."""
    from l2d.config import compose, sweep_axes
    from l2d.config.hydra_adapter import split_grid
    from l2d.runs.cells import make_cells

    axes = [f"{key}={value}" for key, value in sweep_axes(overrides).items()]
    seeds: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for cell in (swept := make_cells(split_grid([*axes, *overrides]), compose)):
        seeds[*cell.names.values(), cell.variant].append(cell.seed)
    known, cells = {cell.names: cell.runs for cell in finished}, []
    for names, wanted in seeds.items():
        runs = {seed: run for seed, run in known.get(names, {}).items() if seed in wanted}
        cells.append(FinishedCell(names, root.joinpath(*names), tuple(wanted), runs))
    if not any(cell.runs for cell in cells) and (wrong := [cell.problem for cell in swept if cell.problem]):
        raise L2DError(wrong[0])
    return cells


def chosen_cells(folder: Path, overrides: Sequence[str]) -> list[FinishedCell]:
    """The finished cells in a folder; with overrides, the cells of that sweep that belong into it."""
    finished = read_cells(folder)
    if not finished:
        raise L2DError(f"{folder}: no finished run; give runs/ or a folder in it")
    if not overrides:
        return with_tuned(finished)
    inside = (folder.parent if folder.name.startswith("seed=") else folder).absolute()
    swept = cells_of_sweep(overrides, finished, finished[0].folder.absolute().parents[5])
    cells = with_tuned([cell for cell in swept if cell.folder.absolute().is_relative_to(inside)])
    if not any(cell.runs for cell in cells):
        others = sum(len(cell.runs) for cell in finished)
        raise L2DError(f"{folder}: no finished run of this sweep, but {others} others: l2d report {folder} shows them")
    return cells


def write_report(words: Sequence[str]) -> str:
    folder, overrides = folder_among(words)
    cells = chosen_cells(folder, overrides)
    paper = own if (own := folder / PAPER.name).is_file() else PAPER
    entries, findings, out, named = summarise(cells, paper), findings_of(cells), folder / "report", titles()
    tables = f"{markdown_findings(findings, named)}\n{markdown_tables(entries, named)}"
    page = html_page(entries, findings, cells, " ".join(overrides) or str(folder), named)
    files = {"index.html": page, "tables.md": tables, "tables.tex": latex_tables(entries, named)}
    if measured := measured_in(cells, paper):
        files["verdicts.md"] = f"# The paper's numbers and these runs\n\n{verdicts_page(measured, named, paper)}"
    out.mkdir(exist_ok=True)
    for name, text in files.items():
        write_text(out / name, text)
    runs, missing = sum(len(cell.runs) for cell in cells), sum(not cell.runs for cell in cells)
    without = f", {missing} of them without a finished run" if missing else ""
    size = f"{counted(runs, 'run')}, {counted(len(cells), 'cell')}{without}"
    shown = [sentence(finding) for finding in findings[:SHOWN]]
    shown += [f"({len(findings) - SHOWN} more on the page)"] if len(findings) > SHOWN else []
    return "\n".join([*shown, "", size, *(str(out / name) for name in files)])


def main(arguments: list[str]) -> None:
    parser = OneLineParser(prog="l2d report", usage=USAGE, description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument("words", nargs="*", metavar="FOLDER, key=value", help=WORDS)
    with answering("interrupted; the same command starts again"):
        print(write_report(parser.parse_args(arguments).words))
