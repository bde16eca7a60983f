"""Put the report's table into a document, between <!-- NAME --> and <!-- /NAME -->, with command, machine, n and time.

    python bench/tables.py docs/digits.md table1-digits runs experiment=table1_error,table1_cost dataset=digits \\
        setup=I,III seed=0,1,2

Overrides as for l2d report; several experiments are several commands, and their tables follow each other.
"""

import argparse
import json
import os
import statistics
from pathlib import Path
from typing import Any

from l2d.analysis.report.compare import summarise
from l2d.analysis.report.read import FinishedCell, read_cells
from l2d.analysis.report.tables import markdown_tables
from l2d.commands.report import cells_of_sweep
from l2d.config import titles
from provenance import commit, versions
from records import put


def timings(cells: list[FinishedCell]) -> list[dict[str, Any]]:
    files = [cell.folder / f"seed={seed}" / "timing.json" for cell in cells for seed in cell.runs]
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def foot(cells: list[FinishedCell], commands: list[str]) -> str:
    """Command, machine, n, how long."""
    found = timings(cells)
    seconds = [float(timing["total_seconds"]) for timing in found]
    devices = ", ".join(sorted({timing["device"] for timing in found}))
    rows = sorted({run.rows.test for cell in cells for run in cell.runs.values()})
    torch = ", ".join(sorted({timing["torch"] for timing in found}))
    machine = f"{devices} ({os.environ['L2D_MACHINE']})" if "L2D_MACHINE" in os.environ else devices
    said = "; ".join(f"`{command}`" for command in commands)
    known = f"torch {torch}" if "L2D_COMMIT" in os.environ else versions()
    return (
        f"{said}. {len(found)} runs, {statistics.median(seconds):.0f} s each (median), {sum(seconds) / 60:.0f} min of work in all;"
        f" test rows: {', '.join(f'{n:,}' for n in rows)}; {machine}; {known}; commit {commit()}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("document", type=Path)
    parser.add_argument("mark")
    parser.add_argument("runs_dir", type=Path)
    parser.add_argument("overrides", nargs="+")
    parser.add_argument("--finished-only", action="store_true", help="leave out cells without a finished run")
    arguments = parser.parse_args()
    experiments = next(text for text in arguments.overrides if text.startswith("experiment=")).split("=")[1].split(",")
    others = [text for text in arguments.overrides if not text.startswith("experiment=")]
    finished = read_cells(arguments.runs_dir)
    cells: list[FinishedCell] = []
    for experiment in experiments:
        cells += cells_of_sweep([f"experiment={experiment}", *others], finished, arguments.runs_dir)
    if arguments.finished_only:
        cells = [cell for cell in cells if cell.runs]
    commands = [" ".join(["l2d train -m", f"experiment={name}", *others]) for name in experiments]
    put(arguments.document, arguments.mark, f"{markdown_tables(summarise(cells), titles())}\n{foot(cells, commands)}")


if __name__ == "__main__":
    main()
