"""examples/deploy: the systemd unit and the container's file name commands and files that exist, and the server starts by them."""

import json
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from configparser import ConfigParser
from pathlib import Path

import pytest

pytest.importorskip("httpx")

from tests.commands.test_serve import Start, begin, free_port
from tests.server.helpers import text_run

from l2d.commands.serve import UVICORN, make_serve_parser

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "examples" / "deploy"


LINES = [line.partition(" ") for line in (DEPLOY / "Containerfile").read_text(encoding="utf-8").splitlines()]
STEPS = {name: rest for name, _, rest in LINES}


def exec_start() -> list[str]:
    unit = ConfigParser(interpolation=None)
    unit.read(DEPLOY / "l2d.service")
    service = unit["Service"]
    path, *words = shlex.split(service["ExecStart"])
    log = make_serve_parser().parse_args(words[1:]).log
    assert Path(log).parent == Path("/var/lib") / service["StateDirectory"]  # else nothing can be written
    assert int(service["TimeoutStopSec"]) > UVICORN["timeout_graceful_shutdown"]  # type: ignore[operator]
    return [Path(path).name, *words]


def entry_point() -> list[str]:
    words = [*json.loads(STEPS["ENTRYPOINT"]), *json.loads(STEPS["CMD"])]
    options = make_serve_parser().parse_args(words[2:])
    assert (options.port, options.host, STEPS["USER"]) == (int(STEPS["EXPOSE"]), "0.0.0.0", "l2d")
    assert Path(options.log).parent == Path(STEPS["VOLUME"])
    return words


def test_the_steps_of_the_container() -> None:
    """What is copied is enough to build the package (tests/test_packaging.py), and what is installed is an extra."""
    copied = {name for step, _, rest in LINES if step == "COPY" for name in rest.split()[:-1]}
    assert copied == {"pyproject.toml", "README.md", "LICENSE", "constraints.txt", "conf", "src"}
    assert all((ROOT / name).exists() for name in copied)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert STEPS["ARG"].removeprefix("EXTRAS=") in extras


@pytest.mark.slow
@pytest.mark.parametrize("command", [exec_start, entry_point])
def test_a_server_by_these_files(command: Callable[[], list[str]], tmp_path: Path, start: Start) -> None:
    """With other paths: it gets ready, the container's check sees that, and it ends with SIGTERM."""
    run, port = text_run(tmp_path).path, free_port()
    about = {"base_url": "http://127.0.0.1:9/v1", "model": "m"}
    (tmp_path / "up.yaml").write_text(json.dumps(dict.fromkeys("abc", about)))
    program, name, *words = command()
    assert (program, name) == ("l2d", "serve")
    options = make_serve_parser().parse_args(words)
    others = [f"--host={options.host}", "--log=log.sqlite", *(["--upstreams=up.yaml"] if options.upstreams else [])]
    words = json.loads(STEPS["HEALTHCHECK"].removeprefix("CMD "))
    check = [sys.executable, *(word.replace("8080", str(port)) for word in words[1:])]
    child = begin(start, run, port, *others)
    assert subprocess.run(check, check=False).returncode == 0
    child.kill(signal.SIGTERM)
    child.wait(20)
    assert subprocess.run(check, check=False, capture_output=True).returncode != 0
