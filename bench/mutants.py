"""Put one mistake at a time into a copy of the source, and see whether a test turns red.

    python bench/mutants.py                # the mistakes of bench/mutants.csv: (what, file in src/l2d, before, after)
    python bench/mutants.py core/ price    # only those with one of these words in their name or file

A mistake is caught by the first test that fails with it; without it, all must pass. A mistake whose text no longer occurs exactly
once in its file is stale. The copy is made at the start, so the tree may change meanwhile.
"""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from records import ROOT, parser_of

LISTED = Path(__file__).with_suffix(".csv")
QUICK = ("-m", "not slow")
LIMIT = 1800  # seconds for a mistake
STALE, LATE = "stale", "no answer in time"
CANNOT_START = "--collect-only"  # in place of a test, where conftest.py cannot be imported


class Mistake(NamedTuple):
    what: str
    file: str
    before: str
    after: str


class Verdict(NamedTuple):
    mistake: Mistake
    caught_by: str | None
    problem: str = ""

    def __str__(self) -> str:
        return f"{self.mistake.what} ({self.mistake.file}): {self.caught_by or self.problem or 'SURVIVED'}"


def try_out(tree: Path, mistake: Mistake) -> Verdict:
    source = tree / "src" / "l2d" / mistake.file
    original = source.read_text(encoding="utf-8") if source.exists() else ""
    if original.count(mistake.before) != 1:
        return Verdict(mistake, None, STALE)
    end = time.monotonic() + LIMIT
    source.write_text(original.replace(mistake.before, mistake.after), encoding="utf-8")
    try:
        failed = next(filter(None, (failures(tree, ["-x", *tests], end) for tests in stages(tree, mistake.file))), None)
    except subprocess.TimeoutExpired:
        return Verdict(mistake, None, LATE)
    finally:
        source.write_text(original, encoding="utf-8")
    if failed and failures(tree, failed[:1], end):
        return Verdict(mistake, None, f"{failed[0]} fails without it too")
    return Verdict(mistake, failed[0] if failed else None)


def stages(tree: Path, file: str) -> Iterator[list[str]]:
    """Arguments of pytest: the changed file's own tests, the quick ones of its room, all quick ones, and the slow ones."""
    room, own = file.split("/")[0], f"test_{Path(file).name}"
    if found := sorted(str(path.relative_to(tree)) for path in tree.glob(f"tests/{room}/**/{own}")):
        yield found
    if (tree / "tests" / room).is_dir():
        yield [*QUICK, f"tests/{room}"]
    yield [*QUICK, "tests", f"--ignore=tests/{room}"]
    yield ["-m", "slow", "tests"]


def failures(tree: Path, arguments: list[str], end: float) -> list[str]:
    """The tests that fail, in a process of their own, as pytest notes them in its cache."""
    cache = tree.with_suffix(".cache")
    shutil.rmtree(cache, ignore_errors=True)
    options = ["-q", "-p", "cacheprovider", "-o", f"cache_dir={cache}", "--assert=plain"]
    settings = {"L2D_COMMIT": "copy", "PYTHONPATH": f"{tree / 'src'}:{tree}"}
    settings |= {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", *options, *arguments]
    silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=tree, env=os.environ | settings, start_new_session=True, **silent)
    try:
        status = process.wait(max(0.0, end - time.monotonic()))
    finally:
        with suppress(ProcessLookupError):  # what its tests started
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return []
    found = cache / "v" / "cache" / "lastfailed"
    return list(json.loads(found.read_text(encoding="utf-8"))) if found.exists() else [CANNOT_START]


def copy_tree(root: Path, to: Path) -> None:
    """Without compiled files: two mistakes may be put in within a second, and each must be seen."""
    hidden = shutil.ignore_patterns(".git", ".venv", ".*cache", "__pycache__", "*.egg-info")
    made = {str(root): {"runs", "site", "build", "dist"}}  # not src/l2d/runs, which is a package
    shutil.copytree(
        root, to, symlinks=True, ignore=lambda folder, names: hidden(folder, names) | made.get(str(folder), set())
    )


def read_mistakes(file: Path, words: list[str]) -> list[Mistake]:
    with file.open(encoding="utf-8", newline="") as lines:
        mistakes = [Mistake(**row) for row in csv.DictReader(lines)]
    return [one for one in mistakes if not words or any(word in one.what or word in one.file for word in words)]


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("words", nargs="*", help="only mistakes with one of these in their name or file")
    parser.add_argument("--list", type=Path, default=LISTED, metavar="FILE", help="another list of mistakes")
    parser.add_argument("--root", type=Path, default=ROOT, metavar="FOLDER", help="the tree to copy")
    options = parser.parse_args()
    mistakes, verdicts = read_mistakes(options.list, options.words), list[Verdict]()
    with tempfile.TemporaryDirectory() as folder:
        copy_tree(options.root, tree := Path(folder) / "tree")
        for number, mistake in enumerate(mistakes, start=1):
            verdicts.append(try_out(tree, mistake))
            print(f"[{number}/{len(mistakes)}] {verdicts[-1]}", flush=True)
    tried = [verdict for verdict in verdicts if verdict.problem != STALE]
    survivors = [verdict for verdict in tried if verdict.caught_by is None]
    print(f"caught {len(tried) - len(survivors)} of {len(tried)}; {len(verdicts) - len(tried)} stale")
    print(*(f"  {verdict}" for verdict in survivors), sep="\n")
    sys.exit(bool(survivors))
