"""`l2d serve`: how it starts, refuses, survives being killed, and stops. What it answers is tested in tests/server."""

import json
import os
import random
import resource
import signal
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx")

import httpx
from tests.commands.refusals import refused
from tests.forker import Child
from tests.router.finished import Untrained
from tests.server.helpers import PROMPTS, FakeUpstream, text_run

from l2d.commands.serve import announce, main, make_serve_parser, make_service, read_token
from l2d.logs.operations import Limit
from l2d.utils.errors import ParameterError

KILLS = 8
Start = Callable[..., Child]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Untrained:
    return text_run(tmp_path_factory.mktemp("run"))


@pytest.mark.slow
def test_mistakes_are_one_line(run: Untrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("upstreams.yaml").write_text("a: {base_url: http://x, modle: y}")
    for arguments, said in (
        (["nowhere"], "nowhere"),
        ([run.path, "--explore", 2], "--explore=2.0"),
        ([run.path, "--port", 70000], "--port=70000"),
        ([run.path, "--keep", "all"], "--keep"),
        ([run.path, "--shadow", "z"], "--shadow=z"),
        ([run.path, "--shadow", "a", "--explore", 0.1], "--explore=0.1"),
        ([run.path, "--drift-limit", 0.5], "--drift-limit=0.5"),
        ([run.path, "--prices", "0.1"], "--prices"),
        ([run.path, "--max-error", 2], "--max-error=2"),
        ([run.path, "--capacity", "{z: 1/hour}"], "--capacity=z"),
        ([run.path, "--capacity", "{a: 0/hour}"], "--capacity.a=0/hour"),
        ([run.path, "--capacity", "{a: 9/year}"], "--capacity.a=9/year"),
        ([run.path, "--capacity", "often"], "--capacity=often"),
        ([run.path, "--explore", 0.1, "--candidate", "none"], "none"),
        ([run.path, "--candidate", run.path], "--candidate="),
        ([run.path, "--promote", "auto"], "--promote=auto"),
        ([run.path, "--explore", 0.1, "--candidate", run.path, "--share", 1], "--share=1.0"),
        ([run.path, "--promote", "later"], "--promote"),
        ([run.path, "--upstreams", "none.yaml"], "none.yaml"),
        ([run.path, "--upstreams", "upstreams.yaml"], "upstreams.yaml"),
        ([run.path, "--log", "no/log.sqlite"], "no/log.sqlite"),
        ([run.path, "--port", "x"], "--port"),
        ([], "RUN"),
    ):
        assert said in refused(main, *arguments)
    assert not list(tmp_path.glob("*.sqlite"))


def test_a_port_that_is_taken(run: Untrained, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"--port={port}:" in refused(main, run.path, "--port", port, "--log", tmp_path / "log.sqlite")


def test_what_it_says_first(run: Untrained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    beside = ["--explore=0.1", "--candidate", str(run.path), "--share", "0.25", "--promote", "auto"]
    options = make_serve_parser().parse_args([str(run.path), "--log", str(tmp_path / "log.sqlite"), *beside])
    service = make_service(options)
    service.log.close()
    assert service.runs.trial is not None
    assert service.runs.trial.promotes
    router = service.runs.current.router
    about = replace(router.description, guard=replace(router.description.guard, constant=1))
    point: Any = "spends $1"
    service.runs.current.router = replace(router, description=about, operating_point=point)
    service.runs.reloaded = "elsewhere"
    announce(options, service, "h", 1)
    note, point, last, candidate, said = capsys.readouterr().err.splitlines()
    assert (note, point) == (service.runs.current.router.guard_note, "spends $1")
    assert "elsewhere" in last
    assert "25 %" in candidate
    for part in (str(run.path), "http://h:1", "log.sqlite"):
        assert part in said


def test_without_the_extra(run: Untrained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert refused(main, run.path).endswith("pip install 'l2d[serve]'")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    assert refused(main, run.path, "--otel").endswith("pip install 'l2d[otel]'")


def test_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the environment or from a file; never from the command line, which every user of the machine can read."""
    monkeypatch.delenv("L2D_ADMIN_TOKEN", raising=False)
    assert read_token("L2D_ADMIN_TOKEN") is None
    file = tmp_path / "token"
    file.write_text("in a file\n")
    monkeypatch.setenv("L2D_ADMIN_TOKEN_FILE", str(file))
    assert read_token("L2D_ADMIN_TOKEN") == "in a file"
    monkeypatch.setenv("L2D_ADMIN_TOKEN", "direct")
    assert read_token("L2D_ADMIN_TOKEN") == "direct"
    for wrong in ("", "ü", "a\nb"):
        monkeypatch.setenv("L2D_ADMIN_TOKEN", wrong)
        with pytest.raises(ParameterError, match="L2D_ADMIN_TOKEN"):
            read_token("L2D_ADMIN_TOKEN")
    assert "token" not in " ".join(action.dest for action in make_serve_parser()._actions)


def test_options_reach_the_service(run: Untrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("L2D_API_TOKEN", "api")
    upstreams = {name: {"base_url": "http://x", "model": name} for name in "abc"}
    (tmp_path / "up.yaml").write_text(json.dumps(upstreams))
    files = [f"--log={tmp_path / 'log.sqlite'}", f"--upstreams={tmp_path / 'up.yaml'}"]
    numbers = ["--explore=0.2", "--prices=0,1,1", "--body-limit=2", "--capacity={a: 40/hour}"]
    options = make_serve_parser().parse_args([str(run.path), *files, *numbers, "--keep=text"])
    service = make_service(options)
    service.log.close()
    settings = service.settings
    assert (settings.explore, settings.keep, settings.api_token, settings.admin_token) == (0.2, "text", "api", None)
    assert (settings.largest_body, list(settings.upstreams)) == (2_000_000, ["a", "b", "c"])
    assert settings.capacity == {"a": Limit(40, "hour")}
    assert service.runs.current.router.description.prices == (0.0, 1.0, 1.0)
    assert service.runs.load(run.path).router.description.prices == (0.0, 1.0, 1.0)  # also after a reload


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def begin(start: Start, run: Path, port: int, *arguments: str) -> Child:
    """The server, once it is ready."""
    child = start(str(run), f"--port={port}", *arguments, name="serve", tiny=False)
    for _ in range(600):
        try:
            if httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 200:
                return child
        except httpx.TransportError:
            assert child.poll() is None, child.err.read_text()
        time.sleep(0.05)
    pytest.fail(child.err.read_text())


class Load(threading.Thread):
    """Asks and reports outcomes without pause; keeps what was acknowledged. It bears a server that dies."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.url, self.over = f"http://127.0.0.1:{port}", threading.Event()
        self.decided: list[str] = []
        self.recorded: list[str] = []
        self.odd: list[str] = []

    def run(self) -> None:
        while not self.over.is_set():
            try:
                with httpx.Client(base_url=self.url, timeout=10) as client:
                    while not self.over.is_set():
                        self.ask(client)
            except httpx.TransportError:
                time.sleep(0.02)

    def ask(self, client: httpx.Client) -> None:
        found = client.post("/v1/route", json={"text": random.choice(PROMPTS)})
        if found.status_code != 200:
            self.odd.append(found.text)
            return
        id = found.json()["decision_id"]
        self.decided.append(id)
        outcome = {"decision_id": id, "correct": True}
        for _ in range(2):  # twice: a client that got no answer repeats
            found = client.post("/v1/outcomes", json=outcome)
            (self.recorded if found.status_code == 200 else self.odd).append(id)


@pytest.fixture
def loads() -> Iterator[list[Load]]:
    found: list[Load] = []
    yield found
    for one in found:
        one.over.set()
        one.join()


@pytest.mark.full
def test_killed_under_load(run: Untrained, tmp_path: Path, start: Start, loads: list[Load]) -> None:
    """SIGKILL at random moments, eight times: whatever was acknowledged is in the log, once, and the server starts again."""
    port, rng = free_port(), random.Random(0)
    loads += [Load(port) for _ in range(4)]
    for number in range(KILLS):
        child = begin(start, run.path, port, "--log=log.sqlite")
        if number == 0:
            for one in loads:
                one.start()
        time.sleep(rng.uniform(0.05, 0.4))
        child.kill(signal.SIGKILL)
        assert child.wait().returncode != 0
    for one in loads:
        one.over.set()
        one.join()
    child = begin(start, run.path, port, "--log=log.sqlite")
    child.kill(signal.SIGTERM)
    child.wait()
    database = sqlite3.connect(tmp_path / "log.sqlite")
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    ids = [id for (id,) in database.execute("SELECT id FROM decisions")]
    outcomes = [id for (id,) in database.execute("SELECT decision_id FROM outcomes")]
    database.close()
    assert [text for one in loads for text in one.odd] == []
    decided = {id for one in loads for id in one.decided}
    recorded = {id for one in loads for id in one.recorded}
    assert len(recorded) > 2 * KILLS
    assert decided <= {*ids}
    assert recorded <= {*outcomes} <= {*ids}
    assert (len(ids), len(outcomes)) == (len({*ids}), len({*outcomes}))


@pytest.mark.full
@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits another process, which only Linux can")
def test_a_full_disk(run: Untrained, tmp_path: Path, start: Start) -> None:
    """The system refuses to write: 503, nothing of what was acknowledged is lost, and when there is room again all goes on."""
    port = free_port()
    child = begin(start, run.path, port, "--log=log.sqlite")
    acknowledged: list[str] = []
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:

        def ask() -> httpx.Response:
            found = client.post("/v1/route", json={"text": PROMPTS[0]})
            if found.status_code == 200:
                acknowledged.append(found.json()["decision_id"])
            return found

        assert [ask().status_code for _ in range(3)] == [200] * 3
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        found = ask()
        assert (found.status_code, "log" in found.text) == (503, True)
        outcome = {"decision_id": acknowledged[0], "correct": True}
        assert client.post("/v1/outcomes", json=outcome).status_code == 503
        assert [client.get(path).status_code for path in ("/health", "/ready")] == [200, 503]
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert ask().status_code == 200
        assert client.post("/v1/outcomes", json=outcome).json() == {"recorded": 1, "known": 0}
        assert client.get("/ready").status_code == 200
    child.kill(signal.SIGKILL)
    child.wait()
    database = sqlite3.connect(tmp_path / "log.sqlite")
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert [id for (id,) in database.execute("SELECT id FROM decisions ORDER BY number")] == acknowledged
    database.close()


@pytest.mark.slow
def test_sigterm_answers_what_has_begun(run: Untrained, tmp_path: Path, start: Start) -> None:
    upstream, port = FakeUpstream("a"), free_port()
    upstream.behaviour = "slow"
    about = {"base_url": f"http://127.0.0.1:{upstream.port}/v1", "model": "m"}
    (tmp_path / "up.yaml").write_text(json.dumps(dict.fromkeys("abc", about)))
    child = begin(start, run.path, port, "--upstreams=up.yaml")
    found: list[Any] = []
    body = {"model": "l2d", "messages": [{"role": "user", "content": "hello"}]}
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    asking = threading.Thread(target=lambda: found.append(httpx.post(url, json=body)))
    asking.start()
    while not upstream.seen:
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGTERM)
    asking.join()
    upstream.close()
    child.wait(20)
    assert found[0].json()["choices"][0]["message"]["content"] == "I am a"
    database = sqlite3.connect(tmp_path / "l2d_log.sqlite")
    assert database.execute("SELECT latency > 0.05 FROM decisions").fetchall() == [(1,)]  # written before the end
    database.close()
    said = child.err.read_text()
    assert "l2d serves" in said
    assert not any(word in said for word in ("Traceback", "hello"))
