"""Mixed traffic for `l2d serve` with faults: is anything lost, does anything grow? Writes bench/results/soak.csv.

    python bench/soak.py --minutes 60      # about a core

Clients ask, stream and report outcomes, some slowly, some with broken bodies. Every minute something goes wrong: an upstream that
fails or stalls, kill -9, a reload, a log that vanishes, a full disk (if this user may mount a small one). The first half kills the
server; in the second half it lives, so that its memory and its handles can be compared.
"""

import asyncio
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from itertools import cycle
from pathlib import Path
from typing import Any, cast

import aiohttp
import numpy as np
import pandas as pd
import psutil
import uvicorn
from fastapi import Request, Response
from fastapi.responses import JSONResponse

import l2d
from bare import upstream
from records import MADE, Results, Row, about, given_options, markdown
from serve import free_port, ready

EXPERTS, COLUMNS = ("small", "large"), ("a", "b")
FAULTS = ("fails", "kill", "stalls", "reload", "vanishes", "full", "nothing")
SECONDS, CLIENTS, DISK = 60, 8, "64M"
CHAT: dict[str, Any] = {"model": "l2d", "messages": [{"role": "user", "content": "?"}]}
RESULTS = Results("soak", "what", f"value {MADE}", compared="value")
SHOWN = (
    *("minutes", "acknowledged decisions", "of these lost", "acknowledged outcomes", "of these outcomes lost"),
    *("memory early, MB", "memory late, MB", "handles early", "handles late"),
)


def make_router(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    errors = np.stack([X[:, 0] > 0, rng.random(400) < 0.2], axis=1)
    frame = pd.DataFrame(X, columns=COLUMNS)
    l2d.fit(frame, errors=errors, prices=[0.0, 0.1], experts=EXPERTS, method="linear").save(folder / "router")
    return folder / "router"


class Soak:
    def __init__(self, folder: Path, minutes: float) -> None:
        self.folder, self.disk, self.minutes = folder, folder / "disk", minutes
        self.disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(self.disk)]
        self.mounted = subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0
        self.run, self.log = make_router(folder), self.disk / "log.sqlite"
        self.port, self.upstream_port = free_port(), free_port()
        self.mood, self.counts, self.decisions, self.outcomes = "well", Counter[str](), set[str](), set[str]()
        self.sizes: list[tuple[float, int]] = []  # MB and handles, since the last start
        base = f"http://127.0.0.1:{self.upstream_port}/v1"
        upstreams = {name: {"base_url": base, "timeout": 3, "model": name} for name in EXPERTS}
        (folder / "upstreams.yaml").write_text(json.dumps(upstreams))
        self.server = self.started()

    def started(self) -> subprocess.Popen[bytes]:
        where = [f"--port={self.port}", f"--log={self.log}", f"--upstreams={self.folder / 'upstreams.yaml'}"]
        command = [sys.executable, "-m", "l2d", "serve", str(self.run), *where]
        environment = os.environ | {"L2D_ADMIN_TOKEN": "soak", "OMP_NUM_THREADS": "1"}
        with (self.folder / "stderr.txt").open("ab") as errors:
            return subprocess.Popen(command, stderr=errors, env=environment)

    @asynccontextmanager
    async def upstreams(self) -> AsyncIterator[None]:
        app = upstream()

        @app.middleware("http")
        async def moody(request: Request, answered: Any) -> Response:
            small = (await request.json())["model"] == "small"
            if small and self.mood == "fails":
                return JSONResponse({"error": {"message": "down"}}, 500)
            if small and self.mood == "stalls":
                await asyncio.sleep(10)
            return cast(Response, await answered(request))

        server = uvicorn.Server(uvicorn.Config(app, port=self.upstream_port, log_level="warning", access_log=False))
        running = asyncio.create_task(server.serve())
        yield
        server.should_exit = True
        await running

    async def client(self, number: int) -> None:
        draw = random.Random(number)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{self.port}", timeout=aiohttp.ClientTimeout(15)) as session:
            while True:
                try:
                    await self.ask(session, draw)
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    self.counts[type(error).__name__] += 1
                    await asyncio.sleep(0.5)
                await asyncio.sleep(draw.uniform(0, 0.1))

    async def ask(self, session: aiohttp.ClientSession, draw: random.Random) -> None:
        kind = draw.choice(("route", "chat", "stream", "broken", "slow"))
        if kind == "slow":
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(b"POST /v1/route HTTP/1.1\r\nhost: x\r\n")
            await asyncio.sleep(1)
            writer.close()
            return
        features = {name: draw.gauss(0, 1) for name in COLUMNS}
        path, body = "/v1/route", dict[str, Any](features=features)
        if kind in ("chat", "stream"):
            told = {name: str(value) for name, value in features.items()}
            path, body = "/v1/chat/completions", CHAT | {"stream": kind == "stream", "metadata": told}
        sent = "{" * 50 if kind == "broken" else json.dumps(body)
        async with session.post(path, data=sent, headers={"content-type": "application/json"}) as answer:
            self.counts[f"{kind} {answer.status}"] += 1
            content = await answer.read()
            if answer.status != 200:
                return
            id = json.loads(content)["decision_id"] if kind == "route" else answer.headers["x-l2d-decision-id"]
            self.decisions.add(id)
        async with session.post("/v1/outcomes", json={"decision_id": id, "correct": draw.random() < 0.8}) as answer:
            self.counts[f"outcome {answer.status}"] += 1
            if answer.status == 200:
                self.outcomes.add(id)

    async def trouble(self, fault: str) -> None:
        filler, hidden = self.disk / "filler", self.disk / "hidden.sqlite"
        if fault == "kill":
            self.server.kill()
            self.server.wait()
            self.server, self.sizes = self.started(), []
            await ready(self.port)
        elif fault == "reload":
            url, head = f"http://127.0.0.1:{self.port}/admin/reload", {"authorization": "Bearer soak"}
            async with aiohttp.request("POST", url, json={"run": str(self.run)}, headers=head) as answer:
                self.counts[f"reload {answer.status}"] += 1
        elif fault == "vanishes":
            self.log.rename(hidden)
            await asyncio.sleep(SECONDS / 4)
            self.log.unlink(missing_ok=True)
            hidden.rename(self.log)
        elif fault == "full" and self.mounted:
            with suppress(OSError), filler.open("wb") as endless:
                while True:
                    endless.write(bytes(2**16))
            await asyncio.sleep(SECONDS / 4)
            filler.unlink()
        else:
            self.mood = fault
            await asyncio.sleep(SECONDS / 3)
            self.mood = "well"

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(5)
            with suppress(psutil.Error):
                server = psutil.Process(self.server.pid)
                self.sizes.append((server.memory_info().rss / 2**20, server.num_fds()))

    async def go(self) -> None:
        await ready(self.port)
        async with self.upstreams():
            tasks = [asyncio.create_task(self.client(number)) for number in range(CLIENTS)]
            tasks.append(asyncio.create_task(self.watch()))
            began = time.monotonic()
            for fault in cycle(FAULTS):
                passed = time.monotonic() - began
                if passed > 60 * self.minutes - SECONDS:
                    break
                if fault != "kill" or passed < 30 * self.minutes:
                    print(f"{passed:6.0f} s  {fault}; {len(self.decisions):,} decisions", flush=True)
                    self.counts[f"fault {fault}"] += 1
                    await self.trouble(fault)
                await asyncio.sleep(SECONDS / 2)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self.server.terminate()
        self.counts["exit status"] = self.server.wait()

    def figures(self) -> dict[str, float]:
        with closing(sqlite3.connect(self.log)) as log:
            kept = {one for (one,) in log.execute("SELECT id FROM decisions")}
            told = {one for (one,) in log.execute("SELECT decision_id FROM outcomes")}
        tenth = max(1, len(self.sizes) // 10)
        early, late = (np.mean(part, axis=0) for part in (self.sizes[tenth : 2 * tenth], self.sizes[-tenth:]))
        decided = (len(self.decisions), len(self.decisions - kept), len(self.outcomes), len(self.outcomes - told))
        found = (self.minutes, *decided, early[0], late[0], early[1], late[1])
        counts = {f"count: {name}": value for name, value in self.counts.items()}
        return dict(zip(SHOWN, found, strict=True)) | counts


def table(rows: Sequence[Row]) -> str:
    found, one = {row["what"]: row["value"] for row in rows}, rows[0]
    counts = {what.removeprefix("count: fault "): value for what, value in found.items() if "fault " in what}
    faults = ", ".join(f"{fault} {value}" for fault, value in counts.items() if fault != "nothing")
    lines = [[what, f"{float(found[what]):,.0f}"] for what in SHOWN]
    return f"{markdown(['', ''], lines)}\n\nFaults: {faults}. `{one['command']}`; {one['machine']}; commit {one['commit']}."


if __name__ == "__main__":
    options = given_options(__doc__, minutes=60.0)
    with tempfile.TemporaryDirectory() as name:
        soak = Soak(Path(name), options.minutes)
        try:
            asyncio.run(soak.go())
            told: dict[str, Any] = about(f"python bench/soak.py --minutes {options.minutes:g}")
            RESULTS.add({"what": what, "value": f"{value:g}"} | told for what, value in soak.figures().items())
        finally:
            soak.server.kill()
            print((soak.folder / "stderr.txt").read_text()[-2000:], file=sys.stderr)
            if soak.mounted:
                subprocess.run(["umount", str(soak.disk)], check=True)
