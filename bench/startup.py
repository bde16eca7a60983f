"""Startup time and memory of the commands: python bench/startup.py

Each case runs in fresh processes, as from a shell, and is compared with `import hydra` and `import torch`. A first process is not
timed: it fills the file caches and shows whether torch is imported. Folders are temporary; one tiny run is finished in them.
Two minutes on two cores.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# No large imports above `measured`: Linux counts a process's memory before its exec into its peak memory.

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "startup.csv"
N = 3  # processes timed for each case
TINY = ["router.width=2", "recipe.epochs=1", "trainer.accelerator=cpu", "progress=false"]
Row = dict[str, str]


class Case(NamedTuple):
    what: str
    command: tuple[str, ...]  # l2d …, or python -c …
    status: int = 0

    @property
    def shown(self) -> str:
        return " ".join(f'"{part}"' if part.startswith("import ") else part for part in self.command)


CASES = (
    Case("Hydra alone", ("python", "-c", "import hydra")),
    Case("torch alone", ("python", "-c", "import torch")),
    Case("help", ("l2d", "--help")),
    Case("help of train", ("l2d", "train", "--help")),
    Case("misspelt key", ("l2d", "train", "recipe.epoch=3"), status=1),
    Case("misspelt value of a group", ("l2d", "train", "method=midl"), status=1),
    Case("wrong value", ("l2d", "train", "method.tau=-1"), status=1),
    Case("finished run", ("l2d", "train", *TINY)),
    Case("dry run", ("l2d", "train", "dry_run=true")),
    Case("report", ("l2d", "report", "runs")),
    Case("420 cells listed", ("l2d", "train", "-m", "experiment=table1_error", "dry_run=true")),
)


def measured(case: Case, folder: Path) -> Row:
    """One case's row. An unexpected exit status ends the measurement."""
    *_, text = run(case, folder, {"PYTHONPROFILEIMPORTTIME": "1"})
    times, cpu, memory = zip(*(run(case, folder)[:3] for _ in range(N)), strict=True)
    return {
        "what": case.what,
        "command": case.shown,
        "seconds": f"{statistics.median(times):.2f}",
        "slowest": f"{max(times):.2f}",
        "cpu_seconds": f"{statistics.median(cpu):.2f}",
        "memory_mib": f"{statistics.median(memory):.0f}",
        "torch": "yes" if re.search(r"^import time:.*\|\s+torch$", text, re.MULTILINE) else "no",
        "n": str(N),
    }


def run(case: Case, folder: Path, more: Mapping[str, str] | None = None) -> tuple[float, float, float, str]:
    """Wall seconds, CPU seconds, peak memory in MiB, and what it wrote."""
    with tempfile.TemporaryFile() as output:
        started = time.perf_counter()
        line = [str(Path(sys.executable).with_name(case.command[0])), *case.command[1:]]
        environment = {**os.environ, **(more or {})}
        process = subprocess.Popen(line, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)  # of this child alone
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    if process.returncode != case.status:
        raise SystemExit(f"{case.shown}: ended with status {process.returncode}, not {case.status}\n{text[-2000:]}")
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, text


def table(rows: Sequence[Row]) -> str:
    lines = ["| | command | seconds | CPU seconds | peak memory | torch imported |", "|---" * 6 + "|"]
    for row in rows:
        used = f"{row['seconds']} | {row['cpu_seconds']} | {row['memory_mib']} MiB | {row['torch']}"
        lines.append(f"| {row['what']} | `{row['command']}` | {used} |")
    first = rows[0]
    said = f"`python bench/startup.py`, median of n = {first['n']} fresh processes each"
    return "\n".join([*lines, "", f"{said}; {first['machine']}; {first['versions']}; commit {first['commit']}."])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        run(Case("", ("l2d", "train", *TINY)), Path(name))
        rows = [measured(case, Path(name)) for case in CASES]

    from records import about, save

    save(RESULTS, [*rows[0], "commit", "machine", "versions"], [about("") | row for row in rows])
