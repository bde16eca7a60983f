"""Commands without their imports: one process imports l2d, and forks a child for every command that a test runs.

`l2d train` spends seven of its eight seconds on imports. The child is a process like any other: it has its own folder, its own
output, dies by any signal.
"""

import contextlib
import json
import os
import pkgutil
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import coverage

import l2d
from tests.conftest import environment, import_libraries

MEASURED = "COVERAGE_PROCESS_CONFIG"
MEASURED_RUNS = 3  # of each test: more of them find no more lines, and take longer for being measured
ROOT = Path(__file__).resolve().parent.parent


class Child:
    """A command that runs."""

    def __init__(self, forker: "Forker", arguments: list[str], pid: int, out: Path, err: Path) -> None:
        self.forker, self.arguments, self.pid, self.out, self.err = forker, arguments, pid, out, err

    def kill(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def poll(self) -> int | None:
        code: int | None = self.forker.ask({"poll": self.pid})["code"]
        return code

    def wait(self, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        limit = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > limit:
                self.kill(9)
                raise subprocess.TimeoutExpired(self.arguments, timeout, self.out.read_text(), self.err.read_text())
            time.sleep(0.02)
        return subprocess.CompletedProcess(self.arguments, code, self.out.read_text(), self.err.read_text())


class Forker:
    def __init__(self) -> None:
        self.server = subprocess.Popen(
            [sys.executable, "-m", "tests.forker"],
            cwd=ROOT,
            env=environment() | measured(),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.number = 0
        self.runs: Counter[str] = Counter()  # by test
        self.outputs = tempfile.TemporaryDirectory()

    def ask(self, request: dict[str, object]) -> dict[str, int | None]:
        assert self.server.stdin
        assert self.server.stdout
        print(json.dumps(request), file=self.server.stdin, flush=True)
        answer: dict[str, int | None] = json.loads(self.server.stdout.readline())
        return answer

    def start(self, arguments: list[str], cwd: Path) -> Child:
        self.number += 1
        out, err = (Path(self.outputs.name, f"{self.number}.{name}") for name in ("out", "err"))
        test, *_ = os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")
        self.runs[test] += 1
        request: dict[str, object] = {
            "measured": self.runs[test] <= MEASURED_RUNS,
            "arguments": arguments,
            "cwd": str(cwd),
            "out": str(out),
            "err": str(err),
        }
        pid = self.ask(request)["pid"]
        assert pid
        return Child(self, arguments, pid, out, err)

    def close(self) -> None:
        assert self.server.stdin
        self.server.stdin.close()
        self.server.wait(timeout=60)
        assert self.server.stdout
        self.server.stdout.close()
        self.outputs.cleanup()


def measured() -> dict[str, str]:
    """Where the tests measure coverage, what has the server and its children do so too: they fork and end by os._exit
    (pyproject.toml: tool.coverage.run.patch)."""
    own = coverage.Coverage.current()
    return {} if own is None else {MEASURED: own.config.serialize()}


def serve() -> None:
    """One request a line, one answer a line."""
    import_everything()
    codes: dict[int, int] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "poll" in request:
            pid = request["poll"]
            if pid not in codes:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    codes[pid] = os.waitstatus_to_exitcode(status)
            answer = {"code": codes.get(pid)}
        else:
            pid = os.fork()
            if pid == 0:
                run(request)
            answer = {"pid": pid}
        print(json.dumps(answer), flush=True)


def import_everything() -> None:
    """Each module of l2d, and what these import only where they need it."""
    import_libraries()
    for module in pkgutil.walk_packages(l2d.__path__, "l2d."):
        if module.name not in ("l2d.__main__", "l2d.train"):  # programs
            import_module(module.name)
    import torch

    torch.set_num_threads(1)


def run(request: dict[str, Any]) -> None:
    os.environ.pop(MEASURED, None)  # processes that the command starts would measure their imports, for seconds
    if not request["measured"]:
        sys.settrace(None)
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
        os.chdir(request["cwd"])
        sys.path.insert(0, request["cwd"])  # as `python -m l2d` has it
        for number, flags, name in ((0, os.O_RDONLY, os.devnull), (1, os.O_WRONLY, "out"), (2, os.O_WRONLY, "err")):
            file = os.open(request.get(name, name), flags | (os.O_CREAT if number else 0), 0o644)
            os.dup2(file, number)
        sys.stdin, sys.stdout = os.fdopen(0, "r"), os.fdopen(1, "w")
        sys.stderr = os.fdopen(2, "w", buffering=1)  # by line, as Python's own
        sys.argv = ["l2d", *request["arguments"]]
        runpy.run_module("l2d", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        if isinstance(leave.code, str):
            print(leave.code, file=sys.stderr)
    except KeyboardInterrupt as pressed:  # as Python ends then
        sys.excepthook(KeyboardInterrupt, pressed, pressed.__traceback__)
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
