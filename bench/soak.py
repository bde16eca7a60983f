"""Mixed traffic for `l2d serve` with faults: is anything lost, does anything grow? Writes bench/results/soak.csv.

    python bench/soak.py --minutes 60      # about a core

Clients ask, stream and report outcomes, some slowly, some with broken bodies. Every minute something goes wrong: an upstream that
fails or stalls, kill -9, a reload, a log that vanishes, a full disk (if this user may mount a small one). The first half kills the
server; in the second half it lives, so that its memory and its handles can be compared.
"""

import argparse
import asyncio
import json
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
from typing import Any

import aiohttp
import numpy as np
import pandas as pd
import yaml
from aiohttp import web

import l2d
from records import MADE, Results, Row, about, markdown, parser_of
from serve import free_port

EXPERTS, COLUMNS = ("small", "large"), ("a", "b")
FAULTS = ("fails", "kill", "stalls", "reload", "vanishes", "full", "nothing")
SECONDS, CLIENTS, DISK = 60, 8, "64M"
RESULTS = Results("soak", "what", f"value {MADE}", compared="value")


def make_router(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    errors = np.stack([X[:, 0] > 0, rng.random(400) < 0.2], axis=1)
    X = pd.DataFrame(X, columns=COLUMNS)
    l2d.fit(X, errors=errors, prices=[0.0, 0.1], experts=EXPERTS, method="linear").save(folder / "router")
    return folder / "router"


class Soak:
    def __init__(self, folder: Path, minutes: float) -> None:
        self.folder, self.disk, self.minutes = folder, folder / "disk", minutes
        self.disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(self.disk)]
        self.mounted = subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0
        self.run, self.log = make_router(folder), self.disk / "log.sqlite"
        self.port, self.up = free_port(), {name: free_port() for name in EXPERTS}
        self.mood, self.counts, self.decisions, self.outcomes = "well", Counter[str](), set[str](), set[str]()
        self.sizes: list[tuple[float, float, int]] = []  # seconds, MB and handles, since the last start
        self.server: subprocess.Popen[bytes] | None = None
        entry = {
            name: {"base_url": f"http://127.0.0.1:{port}/v1", "model": name, "timeout": 3}
            for name, port in self.up.items()
        }
        (folder / "upstreams.yaml").write_text(yaml.safe_dump(entry))

    def start(self) -> None:
        words = [
            str(self.run),
            f"--port={self.port}",
            f"--log={self.log}",
            f"--upstreams={self.folder / 'upstreams.yaml'}",
        ]
        errors = (self.folder / "stderr.txt").open("ab")
        environment = {"L2D_ADMIN_TOKEN": "soak", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
        self.server = subprocess.Popen([sys.executable, "-m", "l2d", "serve", *words], stderr=errors, env=environment)
        self.sizes = []

    async def upstream(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body["model"] == "small" and self.mood == "fails":
            return web.json_response({"error": {"message": "down"}}, status=500)
        if body["model"] == "small" and self.mood == "stalls":
            await asyncio.sleep(10)
        if not body.get("stream"):
            return web.json_response(
                {
                    "id": "x",
                    "object": "chat.completion",
                    "choices": [{"index": 0, "message": {"role": "assistant", "content": "yes"}}],
                }
            )
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(request)
        for word in ("y", "e", "s"):
            await answer.write(
                b"data: "
                + json.dumps({"id": "x", "choices": [{"index": 0, "delta": {"content": word}}]}).encode()
                + b"\n\n"
            )
        await answer.write(b"data: [DONE]\n\n")
        return answer

    @asynccontextmanager
    async def upstreams(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.upstream)
        runner = web.AppRunner(app)
        await runner.setup()
        for port in self.up.values():
            await web.TCPSite(runner, "127.0.0.1", port).start()
        yield
        await runner.cleanup()

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
        kind, features = (
            draw.choice(("route", "chat", "stream", "broken", "slow")),
            [draw.gauss(0, 1), draw.gauss(0, 1)],
        )
        if kind == "slow":
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(b"POST /v1/route HTTP/1.1\r\nhost: x\r\n")
            await asyncio.sleep(1)
            return writer.close()
        if kind == "broken":
            async with session.post(
                "/v1/route", data=b"{" * 50, headers={"content-type": "application/json"}
            ) as answer:
                self.counts[f"broken {answer.status}"] += 1
            return None
        if kind == "route":
            path, body = "/v1/route", dict[str, Any](features=dict(zip(COLUMNS, features, strict=True)))
        else:
            body = {
                "model": "l2d",
                "messages": [{"role": "user", "content": "?"}],
                "stream": kind == "stream",
                "metadata": dict(zip(COLUMNS, map(str, features), strict=True)),
            }
            path = "/v1/chat/completions"
        async with session.post(path, json=body) as answer:
            self.counts[f"{kind} {answer.status}"] += 1
            content = await answer.read()
            if answer.status != 200:
                return None
            id = (await answer.json())["decision_id"] if kind == "route" else answer.headers["x-l2d-decision-id"]
            assert content
            self.decisions.add(id)
        async with session.post("/v1/outcomes", json={"decision_id": id, "correct": draw.random() < 0.8}) as answer:
            self.counts[f"outcome {answer.status}"] += 1
            if answer.status == 200:
                self.outcomes.add(id)
        return None

    async def trouble(self, fault: str) -> None:
        assert self.server is not None
        filler, hidden = self.disk / "filler", self.disk / "hidden.sqlite"
        if fault == "kill":
            self.server.kill()
            self.server.wait()
            self.start()
        elif fault == "reload":
            url, head = f"http://127.0.0.1:{self.port}/admin/reload", {"authorization": "Bearer soak"}
            async with (
                aiohttp.ClientSession(headers=head) as session,
                session.post(url, json={"run": str(self.run)}) as answer,
            ):
                self.counts[f"reload {answer.status}"] += 1
        elif fault == "vanishes":
            self.log.rename(hidden)
            await asyncio.sleep(SECONDS / 4)
            for file in self.disk.glob("log.sqlite*"):
                if file.suffix == ".sqlite":
                    file.unlink()
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
        began = time.monotonic()
        while True:
            await asyncio.sleep(5)
            assert self.server is not None
            process = Path(f"/proc/{self.server.pid}")
            with suppress(OSError, StopIteration):
                line = next(line for line in (process / "status").read_text().splitlines() if line.startswith("VmRSS"))
                size = int(line.split()[1]) / 1024, len([*(process / "fd").iterdir()])
                self.sizes.append((time.monotonic() - began, *size))

    async def go(self) -> None:
        self.start()
        async with self.upstreams():
            tasks = [asyncio.create_task(self.client(number)) for number in range(CLIENTS)]
            tasks.append(asyncio.create_task(self.watch()))
            began, end = time.monotonic(), time.monotonic() + 60 * self.minutes
            for fault in cycle(FAULTS):
                if time.monotonic() > end - SECONDS:
                    break
                if fault != "kill" or time.monotonic() - began < 30 * self.minutes:
                    print(f"{time.monotonic() - began:6.0f} s  {fault}; {len(self.decisions):,} decisions", flush=True)
                    self.counts[f"fault {fault}"] += 1
                    await self.trouble(fault)
                await asyncio.sleep(SECONDS / 2)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert self.server is not None
        self.server.terminate()
        self.counts["exit status"] = self.server.wait()

    def figures(self) -> dict[str, float]:
        with closing(sqlite3.connect(self.log)) as log:
            kept = {one for (one,) in log.execute("SELECT id FROM decisions")}
            told = {one for (one,) in log.execute("SELECT decision_id FROM outcomes")}
        tenth = max(1, len(self.sizes) // 10)
        early, late = (
            np.array(part)[:, 1:].mean(axis=0) for part in (self.sizes[tenth : 2 * tenth], self.sizes[-tenth:])
        )
        return {
            "minutes": self.minutes,
            "acknowledged decisions": len(self.decisions),
            "of these lost": len(self.decisions - kept),
            "acknowledged outcomes": len(self.outcomes),
            "of these outcomes lost": len(self.outcomes - told),
            "memory early, MB": early[0], "memory late, MB": late[0],
            "handles early": early[1], "handles late": late[1],
            **{f"count: {name}": value for name, value in sorted(self.counts.items())},
        }  # fmt: skip


SHOWN = (
    *("minutes", "acknowledged decisions", "of these lost", "acknowledged outcomes", "of these outcomes lost"),
    *("memory early, MB", "memory late, MB", "handles early", "handles late"),
)


def table(rows: Sequence[Row]) -> str:
    found, one = {row["what"]: row["value"] for row in rows}, rows[0]
    faults = ", ".join(
        f"{what[13:]} {value}" for what, value in found.items() if "fault " in what and "nothing" not in what
    )
    lines = [[what, f"{float(found[what]):,.0f}"] for what in SHOWN]
    return f"{markdown(['', ''], lines)}\n\nFaults: {faults}. `{one['command']}`; {one['machine']}; commit {one['commit']}."


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    options: argparse.Namespace = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        soak = Soak(Path(name), options.minutes)
        try:
            asyncio.run(soak.go())
            told = about(f"python bench/soak.py --minutes {options.minutes:g}")
            RESULTS.add([{"what": what, "value": f"{value:g}"} | told for what, value in soak.figures().items()])
        finally:
            if soak.server is not None:
                soak.server.kill()
            print((Path(name) / "stderr.txt").read_text()[-2000:], file=sys.stderr)
            if soak.mounted:
                subprocess.run(["umount", str(soak.disk)], check=True)


if __name__ == "__main__":
    main()
