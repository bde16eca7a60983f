"""The speed and the memory of `l2d serve`, as a router and as a gateway: python bench/serve.py

The server runs as a process of its own, with its log on disk; the load comes from this process over the loopback. Each router is
trained for one epoch first, since the weights do not change the time. Both share the machine's cores. A bare endpoint and a bare
proxy (bench/bare.py) are asked in turn with ours, slice by slice, so that a busy moment meets all.
"""

import asyncio
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch looks

import psutil

from l2d.data.text.pretrained import MINILM, locate
from l2d.router.router import Router
from latency import ROUTERS, prepared
from records import Results, Row, about, given_options, markdown, origin

FIGURES = "n p50_ms p99_ms per_second mb_before mb_after load commit machine versions command"
RESULTS = Results("serve", "what router clients", FIGURES)
RATE = 200  # requests per second, in the first measurement
COMMAND = "python bench/serve.py"
SLICES = 5


class Connection:
    """One kept connection. Written by hand: a client library would take longer than the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def post(self, path: str, body: object) -> float:
        """Milliseconds until the whole answer is there."""
        content = json.dumps(body).encode()
        lines = ("host: localhost", "content-type: application/json", f"content-length: {len(content)}")
        head = "\r\n".join([f"POST {path} HTTP/1.1", *lines, "", ""])
        begun = time.perf_counter()
        self.writer.write(head.encode() + content)
        answer = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        if not answer.startswith(b"http/1.1 200"):
            raise SystemExit(f"{path}: {answer!r}")
        if b"content-length:" in answer:
            await self.reader.readexactly(int(answer.split(b"content-length:")[1].split(b"\r\n")[0]))
        else:
            await self.reader.readuntil(b"\r\n0\r\n\r\n")  # the last of the pieces
        return 1000 * (time.perf_counter() - begun)


@asynccontextmanager
async def connected(port: int, number: int) -> AsyncIterator[list[Connection]]:
    found = [Connection(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(number)]
    yield found
    for one in found:
        one.writer.close()


async def in_turn(
    port: int, clients: int, bodies: Sequence[object], path: str, seconds: float = math.inf, number: float = math.inf
) -> tuple[list[float], float]:
    """Every client asks again as soon as it is answered. Milliseconds of each request, and requests per second."""
    times: list[float] = []

    async def ask(one: Connection, place: int) -> None:
        while time.perf_counter() < begun + seconds and len(times) < number:
            times.append(await one.post(path, bodies[place % len(bodies)]))
            place += clients

    async with connected(port, clients) as found:
        begun = time.perf_counter()
        await asyncio.gather(*(ask(one, place) for place, one in enumerate(found)))
        return times, len(times) / (time.perf_counter() - begun)


async def at_rate(port: int, rate: float, bodies: Sequence[object], seconds: float, path: str) -> list[float]:
    """Requests begin at fixed times, whether or not earlier ones are answered. Waiting for a free connection counts."""
    times: list[float] = []
    async with connected(port, 32) as found:
        free: asyncio.Queue[Connection] = asyncio.Queue()
        for one in found:
            free.put_nowait(one)

        async def ask(place: int, due: float) -> None:
            one = await free.get()
            await one.post(path, bodies[place % len(bodies)])
            times.append(1000 * (time.perf_counter() - due))
            free.put_nowait(one)

        begun, tasks = time.perf_counter(), []
        for place in range(int(rate * seconds)):
            due = begun + place / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.create_task(ask(place, due)))
        await asyncio.gather(*tasks)
    return times


@contextmanager
def server(run: Path, folder: Path, *arguments: str) -> Any:
    """A server of this run: its port and its process."""
    port = free_port()
    command = [sys.executable, "-m", "l2d", "serve", str(run), f"--port={port}", f"--log={folder / 'log.sqlite'}"]
    process = subprocess.Popen([*command, *arguments], cwd=folder, stderr=subprocess.DEVNULL)
    try:
        asyncio.run(ready(port))
        yield port, process
    finally:
        process.terminate()
        process.wait()
        for file in folder.glob("log.sqlite*"):
            file.unlink()


async def ready(port: int) -> None:
    for _ in range(600):
        try:
            (_, writer) = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
            continue
        writer.close()
        return
    raise SystemExit("the server did not start")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def summed(what: str, router: str, clients: int, times: Sequence[float], **others: float) -> Row:
    shares = statistics.quantiles(times, n=100)
    found = {"what": what, "router": router, "clients": clients, "n": len(times), "load": round(os.getloadavg()[0], 2)}
    found |= {"p50_ms": round(shares[49], 2), "p99_ms": round(shares[98], 2)}
    found |= {name: round(value, 1) for name, value in others.items()}
    return {key: str(value) for key, value in found.items()}


def asked(what: str, name: str, clients: int, port: int, bodies: Sequence[object], seconds: float, path: str) -> Row:
    """A row of clients that ask in turn, after a second that is not timed."""
    asyncio.run(in_turn(port, 1, bodies, path, 1))
    times, rate = asyncio.run(in_turn(port, clients, bodies, path, seconds))
    return summed(what, name, clients, times, per_second=rate)


def measure_route(name: str, run: Path, texts: Sequence[str], seconds: float) -> Row:
    """The router's own part of a decision."""
    router, times, end = Router.load(run), list[float](), time.perf_counter() + seconds
    router.route(texts[:1])
    while (begun := time.perf_counter()) < end:
        router.route([texts[len(times) % len(texts)]])
        times.append(1000 * (time.perf_counter() - begun))
    return summed("Router.route in Python", name, 1, times)


def measure_decisions(name: str, run: Path, texts: Sequence[str], folder: Path, seconds: float) -> list[Row]:
    bodies, route = [{"text": text} for text in texts], "/v1/route"
    clients, threads = (16, ["--threads=2"]) if name == "minilm" else (32, [])
    alone = measure_route(name, run, texts, seconds)
    with server(run, folder, *threads) as (port, _):
        how_many = {"one client": 1, "saturation": clients}
        rows = [asked(what, name, number, port, bodies, seconds, route) for what, number in how_many.items()]
        if name == "mlp":
            times = asyncio.run(at_rate(port, RATE, bodies, seconds, route))
            rows.append(summed(f"{RATE} requests per second", name, clients, times))
    return [alone, *rows]


@contextmanager
def bare(*arguments: str) -> Iterator[int]:
    """A process of bench/bare.py: its port."""
    port = free_port()
    part, *others = arguments
    process = subprocess.Popen([sys.executable, str(Path(__file__).with_name("bare.py")), part, str(port), *others])
    try:
        asyncio.run(ready(port))
        yield port
    finally:
        process.terminate()
        process.wait()


def measure_beside_bare(run: Path, texts: Sequence[str], folder: Path, seconds: float) -> list[Row]:
    """A decision beside a bare endpoint, the gateway beside a bare proxy of the same upstream."""
    chats = [{"model": "l2d", "messages": [{"role": "user", "content": text}]} for text in texts]
    queries, streams = [{"text": text} for text in texts], [chat | {"stream": True} for chat in chats]
    rows = []
    with bare("upstream") as upstream, bare("server", str(upstream), str(folder / "bare.log")) as plain:
        about = {"base_url": f"http://127.0.0.1:{upstream}/v1", "model": "m"}
        (folder / "upstreams.yaml").write_text(
            json.dumps(dict.fromkeys(Router.load(run).experts, about)), encoding="utf-8"
        )
        with server(run, folder, "--upstreams=upstreams.yaml") as (ours, _):
            route, chat = "/v1/route", "/v1/chat/completions"
            logged = {"a bare endpoint with a log": (plain, f"{route}/logged")}
            for asked_in_turn, bodies in (
                ({"a bare endpoint": (plain, route), **logged, "a decision": (ours, route)}, queries),
                ({"a bare proxy": (plain, chat), "the gateway": (ours, chat)}, chats),
                ({"a bare proxy, streams": (plain, chat), "the gateway, streams": (ours, chat)}, streams),
            ):
                for clients in (1, 16):
                    rows += in_slices(asked_in_turn, clients, bodies, seconds)
    return rows


def in_slices(
    places: Mapping[str, tuple[int, str]], clients: int, bodies: Sequence[object], seconds: float
) -> list[Row]:
    """places: the port and the path of each."""
    times: dict[str, list[float]] = {what: [] for what in places}
    for part in range(SLICES + 1):  # the first is not counted
        for what, (port, path) in places.items():
            found, _ = asyncio.run(in_turn(port, clients, bodies, path, seconds / SLICES))
            times[what] += found if part else []
    return [summed(what, "mlp", clients, found, per_second=len(found) / seconds) for what, found in times.items()]


def measure_memory(run: Path, texts: Sequence[str], folder: Path, requests: int) -> Row:
    """Resident memory after a tenth of the requests, and after all. Times are not kept: there are other rows for them."""
    bodies, memory, times = [{"text": text} for text in texts], [], list[float]()
    with server(run, folder) as (port, process):
        for number in (requests // 10, requests - requests // 10):
            times += asyncio.run(in_turn(port, 16, bodies, "/v1/route", number=number))[0]
            memory.append(psutil.Process(process.pid).memory_info().rss / 2**20)
    found = summed("memory", "mlp", 16, times, mb_before=memory[0], mb_after=memory[1])
    return found | {"p50_ms": "", "p99_ms": ""}


def table(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        memory = f"{row['mb_before']} MB, then {row['mb_after']} MB" if row["mb_after"] else ""
        times = [f"{row[key]} ms" if row[key] else "" for key in ("p50_ms", "p99_ms")]
        asked = [row["what"], f"`{row['router']}`", row["clients"], f"{int(row['n']):,}"]
        lines.append([*asked, *times, row["per_second"], memory])
    load = max(float(row["load"]) for row in rows)
    head = ("what", "router", "clients", "requests", "median", "99 %", "per second", "memory")
    foot = f"`{COMMAND}` on {origin(rows, 'machine versions')}. The load of the machine was at most {load:g}"
    return f"{markdown(head, lines)}\n\n{foot}, that of the measurement included."


if __name__ == "__main__":
    options = given_options(__doc__, seconds=10.0, requests=50_000)  # of each measurement; to look at the memory
    for name in ["mlp"] if locate("minilm") == MINILM else ["mlp", "minilm"]:
        with tempfile.TemporaryDirectory() as place:
            run, texts = prepared(ROUTERS[name], folder := Path(place))
            rows = measure_decisions(name, run, texts, folder, options.seconds)
            if name == "mlp":
                rows += measure_beside_bare(run, texts, folder, options.seconds)
                rows.append(measure_memory(run, texts, folder, options.requests))
        RESULTS.add(row | about(COMMAND) for row in rows)
