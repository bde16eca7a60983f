"""Commands without their imports: a copy of the tests' process forks a child for every command that a test runs.

`l2d train` spends seven of its eight seconds on imports. The child is a process like any other: it has its own folder, its own
output, dies by any signal.
"""

import contextlib
import gc
import io
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
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import l2d
from l2d.config import check, compose
from tests.conftest import environment, import_libraries
from tests.metrics_example import example_metrics
from tests.running import no_pictures

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
    """A copy of this process that has imported everything. Made before any test runs: a process that has trained has threads, which
    a copy lacks."""

    def __init__(self) -> None:
        (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pytest-xdist has a thread that waits for messages
            self.pid = os.fork()
        if self.pid == 0:
            os.close(ours_out)
            serve(os.fdopen(theirs_in), os.fdopen(theirs_out, "w"))
        os.close(theirs_in)
        os.close(theirs_out)
        self.requests, self.answers = os.fdopen(ours_out, "w"), os.fdopen(ours_in)
        self.number = 0
        self.outputs = tempfile.TemporaryDirectory()

    def ask(self, request: dict[str, object]) -> dict[str, int | None]:
        print(json.dumps(request), file=self.requests, flush=True)
        answer: dict[str, int | None] = json.loads(self.answers.readline())
        return answer

    def start(self, arguments: list[str], cwd: Path) -> Child:
        self.number += 1
        out, err = (Path(self.outputs.name, f"{self.number}.{name}") for name in ("out", "err"))
        pid = self.ask({"arguments": arguments, "cwd": str(cwd), "out": str(out), "err": str(err)})["pid"]
        assert pid
        return Child(self, arguments, pid, out, err)

    def close(self) -> None:
        self.requests.close()
        os.waitpid(self.pid, 0)
        self.answers.close()
        self.outputs.cleanup()


def serve(requests: TextIO, answers: TextIO) -> None:
    """One request a line, one answer a line."""
    try:
        os.setsid()  # Ctrl-C ends the tests, and their end this
        as_outside_of_tests()
        import_everything()
        answer_all(requests, answers)
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    os._exit(0)


def as_outside_of_tests() -> None:
    """No coverage, which would be of no use here, and Python's own filters of warnings."""
    if "coverage" in sys.modules and (measuring := sys.modules["coverage"].Coverage.current()) is not None:
        measuring.stop()
    warnings.resetwarnings()
    for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", kind)
    os.environ.update(environment())


def answer_all(requests: TextIO, answers: TextIO) -> None:
    codes: dict[int, int] = {}
    for line in requests:
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
        print(json.dumps(answer), file=answers, flush=True)


def import_everything() -> None:
    """Each module of l2d, and what these import only where they need it."""
    import_libraries()
    for module in pkgutil.walk_packages(l2d.__path__, "l2d."):
        if module.name != "l2d.__main__":  # a program
            import_module(module.name)
    import torch

    torch.set_num_threads(1)
    warm_up()
    no_pictures().start()
    gc.freeze()  # every run collects garbage before it begins; imported modules are not garbage


def warm_up() -> None:
    """Do what takes longer the first time: composing, data, drawing. (Not training: a child of a process that has trained cannot.)"""
    from l2d.assembly.build import make_router, make_splits
    from l2d.runs.summary import run_figure

    experiment = check(compose())
    make_router(experiment, make_splits(experiment))
    run_figure(example_metrics()).savefig(io.BytesIO())


def run(request: dict[str, Any]) -> None:
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
