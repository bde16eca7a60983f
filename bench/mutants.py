"""Put one mistake at a time into a copy of the source, and see whether a test turns red.

    python bench/mutants.py                # the mistakes of bench/mutants.csv: (what, file in src/l2d, before, after)
    python bench/mutants.py core/ price    # only those with one of these words in their name or file

A mistake is caught by the first test that fails with it and passes without it. A mistake whose text no longer occurs exactly
once in its file is stale. The copy is made at the start, so the tree may change meanwhile.
"""

import argparse
import compileall
import contextlib
import csv
import importlib
import multiprocessing
import os
import py_compile
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

ROOT = Path(__file__).resolve().parent.parent
LISTED = Path(__file__).with_suffix(".csv")
# Slow to import, so imported once, before the processes that run tests are forked. None of them imports l2d.
LIBRARIES = (
    *("torch", "torchvision", "pytorch_lightning", "timm", "hydra", "omegaconf", "matplotlib.figure", "hypothesis"),
    *("sklearn.datasets", "sklearn.model_selection", "scipy.io", "scipy.stats", "pyarrow.csv", "pyarrow.parquet"),
    *("pydantic", "fastapi", "starlette.testclient", "httpx", "uvicorn", "prometheus_client", "coverage"),
)
OPTIONS = ("-q", "-p", "no:cacheprovider", "--assert=plain", "--durations=0")
QUICK = ("-m", "not slow")
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


class Reds:
    """A pytest plugin that appends each failure to a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            with self.file.open("a", encoding="utf-8") as file:
                print(report.nodeid, file=file)

    pytest_collectreport = pytest_runtest_logreport


@dataclass
class Copy:
    """A copy of the tree, and what is known of its tests without any mistake."""

    tree: Path
    green: set[str] = field(default_factory=set)
    red: set[str] = field(default_factory=set)

    def try_out(self, mistake: Mistake, limit: float) -> Verdict:
        source = self.tree / "src" / "l2d" / mistake.file
        original = source.read_text(encoding="utf-8") if source.exists() else ""
        if original.count(mistake.before) != 1:
            return Verdict(mistake, None, STALE)
        end = time.monotonic() + limit
        try:
            for tests in self.stages(mistake.file):
                while True:
                    source.write_text(original.replace(mistake.before, mistake.after), encoding="utf-8")
                    failed = self.failures(["-x", *tests, *self.without_red()], end)
                    source.write_text(original, encoding="utf-8")
                    if not failed or failed[0] in self.red:
                        break
                    if failed[0] in self.green or not self.failures(failed[:1], end):
                        self.green.add(failed[0])
                        return Verdict(mistake, failed[0])
                    if failed[0] == CANNOT_START:
                        raise RuntimeError("pytest does not start without any mistake either")
                    self.red |= {failed[0], *self.failures(tests, end)}
        except TimeoutError:
            return Verdict(mistake, None, LATE)
        finally:
            source.write_text(original, encoding="utf-8")
        return Verdict(mistake, None)

    def stages(self, file: str) -> Iterator[list[str]]:
        """Arguments of pytest: the changed file's own tests, then the quick ones of files that import it, of its room, and all."""
        room, stem, module = file.split("/")[0], Path(file).stem, f"l2d.{file.removesuffix('.py').replace('/', '.')} "
        tests = {str(path.relative_to(self.tree)): path for path in sorted(self.tree.glob("tests/**/test_*.py"))}
        own = [name for name in tests if name.startswith(f"tests/{room}/") and name.endswith(f"/test_{stem}.py")]
        near = [name for name in tests if name not in own and module in tests[name].read_text(encoding="utf-8")]
        seen = [f"--ignore={name}" for name in (*own, *near)]
        if own:
            yield own
        if near:
            yield [*QUICK, *near]
        if (self.tree / "tests" / room).is_dir():
            yield [*QUICK, f"tests/{room}", *seen]
        yield [*QUICK, "tests", f"--ignore=tests/{room}", *seen]

    def without_red(self) -> list[str]:
        return [f"--deselect={test}" if "::" in test else f"--ignore={test}" for test in sorted(self.red)]

    def failures(self, arguments: list[str], end: float) -> list[str]:
        """The tests that fail, in a process of their own."""
        report = self.tree.with_suffix(".red")
        report.unlink(missing_ok=True)
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            run_pytest(self.tree, arguments, report)
        try:
            while (done := os.waitpid(child, os.WNOHANG))[0] == 0:
                if time.monotonic() > end:
                    raise TimeoutError
                time.sleep(0.02)
        except BaseException:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
        finally:
            with contextlib.suppress(ProcessLookupError):  # what its tests started
                os.killpg(child, signal.SIGKILL)
        if os.waitstatus_to_exitcode(done[1]) in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return []
        return report.read_text(encoding="utf-8").splitlines() if report.exists() else [CANNOT_START]


def run_pytest(tree: Path, arguments: list[str], report: Path) -> NoReturn:
    """Leave this process with pytest's exit code. The copy's l2d comes before an installed one."""
    code = 1
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        os.chdir(tree)
        os.environ |= {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        sys.path[:0], sys.dont_write_bytecode = [str(tree / "src"), str(tree)], True
        code = int(pytest.main([*OPTIONS, *arguments], plugins=[Reds(report)]))
        package = sys.modules.get("l2d")
        if package is not None and not Path(package.__file__ or "").is_relative_to(tree):
            report.unlink(missing_ok=True)  # it says nothing about the copy
            code = 1
    finally:
        os._exit(code)


def import_libraries() -> None:
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if "l2d" in sys.modules:
        sys.exit("a library imported l2d: the mistakes would not be seen")


def copy_tree(root: Path, to: Path) -> None:
    """Compiled so that a changed source is noticed by its contents: two mistakes may be put in within a second."""
    hidden = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")
    made = {"runs", "site", "build", "dist"}  # the root's only: src/l2d/runs is a package

    def left_out(folder: str, names: list[str]) -> set[str]:
        return {*hidden(folder, names), *(made if Path(folder) == root else ())}

    shutil.copytree(root, to, symlinks=True, ignore=left_out)
    checked = py_compile.PycInvalidationMode.CHECKED_HASH
    for folder in ("src", "tests"):
        compileall.compile_dir(to / folder, quiet=2, invalidation_mode=checked)


def read_mistakes(file: Path, words: list[str]) -> list[Mistake]:
    with file.open(encoding="utf-8", newline="") as lines:
        mistakes = [Mistake(**row) for row in csv.DictReader(lines)]
    return [one for one in mistakes if not words or any(word in one.what or word in one.file for word in words)]


COPIES: dict[int, Copy] = {}


def in_own_copy(first: Path, limit: float, mistake: Mistake) -> Verdict:
    """Each process has a copy of its own, made when it gets its first mistake."""
    if os.getpid() not in COPIES:
        COPIES[os.getpid()] = Copy(first.with_name(f"tree{os.getpid()}"))
        shutil.copytree(first, COPIES[os.getpid()].tree, symlinks=True)
    return COPIES[os.getpid()].try_out(mistake, limit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="only mistakes with one of these in their name or file"
    )
    parser.add_argument("--list", type=Path, default=LISTED, metavar="FILE", help="another list of mistakes")
    parser.add_argument("--root", type=Path, default=ROOT, metavar="FOLDER", help="the tree to copy")
    parser.add_argument("--jobs", type=int, default=1, help="mistakes tried at the same time")
    parser.add_argument("--limit", type=float, default=900, metavar="SECONDS", help="the longest time for a mistake")
    options = parser.parse_args()
    mistakes, verdicts = read_mistakes(options.list, options.words), []
    import_libraries()
    with tempfile.TemporaryDirectory() as folder:
        copy_tree(options.root, first := Path(folder) / "tree")
        with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("fork")) as pool:
            for verdict in pool.map(partial(in_own_copy, first, options.limit), mistakes):
                verdicts.append(verdict)
                print(f"[{len(verdicts)}/{len(mistakes)}] {verdict}", flush=True)
    tried = [verdict for verdict in verdicts if verdict.problem != STALE]
    survivors = [verdict for verdict in tried if verdict.caught_by is None]
    print(f"caught {len(tried) - len(survivors)} of {len(tried)}; {len(verdicts) - len(tried)} stale")
    for verdict in survivors:
        print(f"  {verdict}")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
