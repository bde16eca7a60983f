"""Several processes that serve one run: started by the command, and by Ray."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx")

import httpx
from tests.router.finished import Untrained
from tests.server.helpers import PROMPTS, text_run

from l2d.commands import serve
from l2d.logs.export import read_long_form

HEADERS = {"authorization": "Bearer secret"}
SECONDS = 90


@pytest.fixture
def run(tmp_path: Path) -> Untrained:
    return text_run(tmp_path)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as door:
        return int(door.getsockname()[1])


def wait_for(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    port = free_port()
    command = [sys.executable, "-m", "l2d", "serve", *arguments, f"--port={port}"]
    environment = {**os.environ, "L2D_ADMIN_TOKEN": "secret", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": ""}
    process = subprocess.Popen(command, cwd=folder, env=environment)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: process.poll() is not None or is_ready(address))
        yield address, process
    finally:
        process.terminate()
        process.wait(SECONDS)


def is_ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/ready").status_code == 200
    except httpx.HTTPError:
        return False


def route(address: str, prompt: str) -> dict[str, Any]:
    """On a connection of its own, so that any process may answer."""
    found = httpx.post(f"{address}/v1/route", json={"text": prompt})
    assert found.status_code == 200
    answer: dict[str, Any] = found.json()
    return answer


def children(process: subprocess.Popen[bytes]) -> list[int]:
    """The workers: they have the socket; the resource tracker of multiprocessing has not."""
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in found if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for the workers in /proc")
def test_workers_share_port_log_metrics_and_reloads(run: Untrained, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = str(text_run(tmp_path / "other").path)
    log = tmp_path / "log.sqlite"
    with serving(tmp_path, str(run.path), "--workers=2", f"--log={log}") as (address, process):
        wait_for(lambda: len(children(process)) == 2)
        ids = [route(address, PROMPTS[0])["decision_id"] for _ in range(10)]
        for id in ids:  # no matter which of them decided
            body = {"decision_id": id, "correct": 1}
            assert httpx.post(f"{address}/v1/outcomes", json=body).json() == {"recorded": 1, "known": 0}
        assert "l2d_outcomes_total 10.0" in httpx.get(f"{address}/metrics").text
        assert httpx.post(f"{address}/admin/reload", json={"run": other}, headers=HEADERS).status_code == 200
        wait_for(lambda: httpx.get(f"{address}/metrics").text.count(f'run="{other}"}} 1.0') == 2)
        assert {route(address, PROMPTS[0])["run"] for _ in range(10)} == {other}
        killed = children(process)[0]
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: len(found := children(process)) == 2 and killed not in found)
        # The new one has not seen the reload, but serves the run that the others serve.
        wait_for(lambda: httpx.get(f"{address}/metrics").text.count(f'run="{other}"}} 1.0') == 2)
        wait_for(lambda: is_ready(address))
        assert {route(address, PROMPTS[0])["run"] for _ in range(10)} == {other}
    assert process.returncode in (0, -signal.SIGTERM)
    assert len(read_long_form(log).columns["id"]) == 10


@pytest.mark.slow
def test_workers_that_cannot_start(run: Untrained, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, before there are any."""
    for given, said in {
        "--workers=0": "--workers=0",
        "--port=0": "--port=0",
        "--log=mysql://h/d": "mysql://h/d",
        "--shadow=nobody": "--shadow=nobody",
    }.items():
        with pytest.raises(SystemExit) as stopped:
            serve.main([str(run.path), "--workers=2", given])
        assert said in str(stopped.value) + capsys.readouterr().err


@pytest.mark.full
def test_on_ray(run: Untrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    ray_serve = pytest.importorskip("ray.serve")
    from l2d.commands.on_ray import app

    (tmp_path / "other").mkdir()
    other = str(text_run(tmp_path / "other").path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("L2D_ADMIN_TOKEN", "secret")
    before = signal.getsignal(signal.SIGTERM)  # Ray changes it for the whole process
    ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
    try:
        log, port = tmp_path / "log.sqlite", free_port()
        ray_serve.start(http_options={"port": port})
        ray_serve.run(app({"run": str(run.path), "log": str(log), "explore": "0.5", "replicas": "2"}))
        address = f"http://127.0.0.1:{port}"
        ids = [route(address, prompt)["decision_id"] for prompt in PROMPTS[:6]]
        for id in ids:
            body = {"decision_id": id, "correct": 1}
            assert httpx.post(f"{address}/v1/outcomes", json=body).json() == {"recorded": 1, "known": 0}
        assert len(read_long_form(log).columns["id"]) == 6
        assert httpx.post(f"{address}/admin/reload", json={"run": other}, headers=HEADERS).status_code == 200
        wait_for(lambda: {route(address, PROMPTS[0])["run"] for _ in range(10)} == {other})
    finally:
        ray_serve.shutdown()
        ray.shutdown()
        signal.signal(signal.SIGTERM, before)
