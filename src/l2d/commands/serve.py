"""l2d serve RUN: a trained router as a service, and a gateway to its experts."""

import argparse
import json
import os
import random
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from l2d.commands.route import add_decision_flags, load_router, read_capacity
from l2d.utils.errors import ParameterError, from_extra
from l2d.utils.user_errors import OneLineParser, answering, given_as_flags

if TYPE_CHECKING:  # they import torch
    from l2d.server.served import ServedRun
    from l2d.server.service import RouterService

LIMITS = (
    *(("explore", 0, 1), ("explore_second", 0, 1), ("drift_limit", 0, 1), ("port", 0, 65535), ("cap", 0, 1e9)),
    *(("threads", 1, 1024), ("workers", 1, 1024), ("most_calls", 1, 1024), ("body_limit", 1e-6, 1e6)),
)
ARGUMENTS, SWAPS = "L2D_SERVE_ARGUMENTS", "L2D_SERVE_SWAPS"  # in the environment of worker processes
UVICORN = {"log_level": "warning", "access_log": False, "timeout_graceful_shutdown": 30, "lifespan": "on"}
UVICORN |= {"server_header": False, "http": "l2d.server.protocol:LimitedProtocol"}
ADMIN, API = "L2D_ADMIN_TOKEN", "L2D_API_TOKEN"
Tokens = dict[str, str | None]
DESCRIPTION = """Serve the router of a finished run over HTTP: POST /v1/route decides, POST /v1/outcomes tells how it went. With
--upstreams it is also a gateway for OpenAI clients: POST /v1/chat/completions with the model l2d.
docs/serving.md describes every endpoint, header and metric."""
EPILOG = f"""tokens, which are never given on the command line:
  {API}     if set, /v1/... needs the header Authorization: Bearer TOKEN (OpenAI clients: the api_key)
  {ADMIN}   POST /admin/reload needs it the same way; without it nobody can reload
  {API}_FILE and {ADMIN}_FILE name files with the tokens instead

examples:
  l2d serve runs/queries/own/table/error/cost_regression/1a2b3c4d/seed=0
  l2d serve RUN --upstreams upstreams.yaml --explore 0.05 --log log.sqlite
  curl localhost:8080/v1/route -H 'content-type: application/json' -d '{{"text": "What is 2 + 2?"}}'"""


def make_serve_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="l2d serve", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("run", metavar="RUN", type=Path, help="the folder of a finished run, runs/.../seed=<s>")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, default=8080, help="port to listen on (default: 8080)")
    parser.add_argument("--upstreams", metavar="FILE", type=Path, help="YAML: base_url, model, … of each expert")
    log = parser.add_argument_group("log")
    where = "an SQLite file, or postgresql://USER@HOST/NAME (default: l2d_log.sqlite)"
    log.add_argument("--log", metavar="LOG", default="l2d_log.sqlite", help=where)
    kept = "what the log keeps of inputs (default: features, the numbers that the router saw)"
    log.add_argument("--keep", choices=("text", "features", "none"), default="features", help=kept)
    steps = parser.add_argument_group("safe steps")
    drawn = "draw the expert of this share of queries at random, and log propensities"
    steps.add_argument("--explore", metavar="SHARE", type=float, default=0.0, help=drawn)
    again = "ask a second expert, drawn at random, for this share of queries (method=plan)"
    steps.add_argument("--explore-second", metavar="SHARE", type=float, default=0.0, help=again)
    shadow = "answer with this expert; log what the router would have done"
    steps.add_argument("--shadow", metavar="EXPERT", help=shadow)
    far = "if more than this share of the last inputs is far from the training rows, the guard's expert answers"
    steps.add_argument("--drift-limit", metavar="SHARE", type=float, help=far)
    beside = "a second run, which decides --share of the queries; the log tells which of the two costs less"
    steps.add_argument("--candidate", metavar="RUN", type=Path, help=beside)
    steps.add_argument("--share", type=float, default=0.1, help="of the queries, for the candidate (default: 0.1)")
    takes_over = "auto: the better of the two serves alone as soon as that is sure (default: never)"
    steps.add_argument("--promote", choices=("auto", "never"), default="never", help=takes_over)
    add_decision_flags(parser)
    known = "a name of this server, in the header Host; without an API token, only its address and localhost are known"
    parser.add_argument("--name", metavar="HOST", action="append", default=[], help=known)
    traced = "traces and metrics for OpenTelemetry; the standard variables OTEL_... say where they go"
    parser.add_argument("--otel", action="store_true", help=traced)
    limits = parser.add_argument_group("limits")
    paid = "most money for the calls of a query, in the unit of the prices in training (method=plan)"
    limits.add_argument("--cap", metavar="PRICE", type=float, help=paid)
    limits.add_argument("--most-calls", metavar="N", type=int, help="most answers to a query (method=plan)")
    often = """how often experts may be asked by minute, hour or day, such as {alice: "40/hour 9-17", large: "100/minute"};
        servers with one log count together"""
    limits.add_argument("--capacity", type=read_capacity, default={}, help=often)
    limits.add_argument("--workers", type=int, default=1, help="processes that share the port and the log (default: 1)")
    limits.add_argument("--threads", type=int, default=1, help="of torch, for a decision (default: 1)")
    limits.add_argument("--body-limit", metavar="MB", type=float, default=8.0, help="largest body (default: 8 MB)")
    return parser


def read_token(variable: str) -> str | None:
    token, file = os.environ.get(variable), os.environ.get(f"{variable}_FILE")
    if token is None and file is not None:
        token = Path(file).read_text(encoding="utf-8").strip()
    if token is not None and not (token and token.isascii() and token.isprintable()):
        raise ParameterError(variable, "must be printable ASCII, and not empty")
    return token


def served_run(options: argparse.Namespace) -> "ServedRun":
    from l2d.server.served import ServedRun, example_query

    router = load_router(options)
    router.route(example_query(router))  # encoders load their weights when they are first used
    return ServedRun(router, str(options.run))


def read_tokens() -> Tokens:
    return {"api_token": read_token(API), "admin_token": read_token(ADMIN)}


def make_service(
    options: argparse.Namespace, swaps: int | None = None, tokens: Tokens | None = None
) -> "RouterService":
    """swaps: see RouterService. tokens: None: those of the environment."""
    tokens = read_tokens() if tokens is None else tokens
    run = served_run(options)
    from l2d.logs.databases import log_address
    from l2d.logs.operations import read_limits
    from l2d.logs.outcome_log import OutcomeLog
    from l2d.server.policy import Policy
    from l2d.server.served import ServeSettings, check_settings
    from l2d.server.service import RouterService
    from l2d.server.succession import Succession, make_trial
    from l2d.server.upstreams import read_upstreams

    upstreams = {} if options.upstreams is None else read_upstreams(options.upstreams, run.router.experts)
    names = ("keep", "explore", "explore_second", "shadow", "drift_limit", "cap", "most_calls")
    chosen = {name: getattr(options, name) for name in names} | tokens
    own = frozenset(map(str.lower, [options.host, *options.name]))
    chosen |= {"largest_body": int(options.body_limit * 1e6), "names": own}
    with given_as_flags():
        limits = read_limits(options.capacity, run.router.experts)
        settings = ServeSettings(upstreams=upstreams, capacity=limits, **chosen)
        check_settings(settings, run.router)

    def load(folder: Path) -> "ServedRun":
        prices = options.prices
        if isinstance(prices, list):  # in the order of the first run's experts
            prices = dict(zip(run.router.experts, prices, strict=True))
        return served_run(argparse.Namespace(**{**vars(options), "run": folder, "prices": prices}))

    trial = None
    if options.candidate:
        if not options.explore:
            problem = "needs --explore above 0, such as 0.02: else the log can judge no other router"
            raise ParameterError("--candidate", problem, options.candidate)
        with given_as_flags():
            trial = make_trial(settings, run, load(options.candidate), options.share, options.promote == "auto")
    log, policy = OutcomeLog(log_address(options.log)), Policy(settings, random.Random())
    return RouterService(Succession(run, log, policy, load, swaps, trial))


def swaps_in_log(options: argparse.Namespace) -> int:
    from l2d.logs.databases import log_address, open_database
    from l2d.logs.operations import last_swap

    with closing(open_database(log_address(options.log))) as database:
        return last_swap(database)[0]


def serve_options(arguments: Sequence[str]) -> argparse.Namespace:
    options = make_serve_parser().parse_args(arguments)
    for name, least, most in LIMITS:
        value = getattr(options, name)
        if value is not None and not least <= value <= most:
            raise ParameterError(f"--{name.replace('_', '-')}", f"must be from {least:g} to {most:g}", value)
    if options.promote == "auto" and options.candidate is None:
        raise ParameterError("--promote", "needs --candidate, the run that may take over", options.promote)
    from l2d.runs.folder import RunFolder

    if options.otel:
        with from_extra("otel", "--otel"):
            import opentelemetry.exporter.otlp.proto.http  # noqa: F401
    for run in filter(None, (options.run, options.candidate)):
        RunFolder(run.expanduser()).config()  # before anything slow is imported
    return options


def make_app_of(options: argparse.Namespace, swaps: int | None = None, tokens: Tokens | None = None) -> Any:
    import torch

    from l2d.server.app import make_app

    torch.set_num_threads(options.threads)
    telemetry = None
    if options.otel:
        from l2d.server.telemetry import Telemetry

        telemetry = Telemetry()
    return make_app(make_service(options, swaps, tokens), telemetry)


def make_worker_app() -> Any:
    """The app of one process of several, which have the command's arguments in their environment."""
    app = make_app_of(serve_options(json.loads(os.environ[ARGUMENTS])), int(os.environ[SWAPS]))
    print(f"worker {os.getpid()} serves", file=sys.stderr, flush=True)
    return app


def main(arguments: Sequence[str]) -> None:
    with answering("stopped"):
        options = serve_options(arguments)
        with from_extra("serve", "l2d serve"):
            import aiohttp  # noqa: F401
            import fastapi  # noqa: F401
            import prometheus_client  # noqa: F401
            import uvicorn
        if options.workers == 1:
            serve(uvicorn, make_app_of(options), options)
        else:
            serve_together(uvicorn, options, arguments)


def serve_together(uvicorn: Any, options: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Several processes, which uvicorn starts again if they die. Mistakes in the arguments are printed before."""
    if options.port == 0:
        raise ParameterError("--port", "must be a port that all workers can share", 0)
    service = make_service(options)
    service.log.close()
    with open_door(options) as door:  # only to see whether it opens: uvicorn opens it itself
        announce(options, service, *door.getsockname()[:2])
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {ARGUMENTS: json.dumps(list(arguments)), SWAPS: str(service.runs.swaps)}
        os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", folder)
        app = f"{__name__}:{make_worker_app.__name__}"
        listen = {"host": options.host, "port": options.port, "workers": options.workers}
        uvicorn.run(app, factory=True, **listen, **UVICORN)


def open_door(options: argparse.Namespace) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        return socket.create_server((options.host, options.port), family=family)
    except OSError as error:
        raise ParameterError("--port", f"cannot listen on {options.host} ({error.strerror})", options.port) from error


def announce(options: argparse.Namespace, service: "RouterService", host: str, port: int) -> None:
    open_to_all = "; anybody may ask" if service.settings.api_token is None else ""
    router, last = service.runs.current.router, service.runs.reloaded
    other = f"the last reload with this log was to {last}" if last not in (None, service.runs.current.name) else None
    said = f"l2d serves {options.run} on http://{host}:{port}; log: {options.log}{open_to_all}"
    beside = None if service.runs.trial is None else service.runs.trial.note
    notes = [about for about in (router.guard_note, router.operating_point, other, beside) if about is not None]
    print(*notes, said, sep="\n", file=sys.stderr, flush=True)


def serve(uvicorn: Any, app: Any, options: argparse.Namespace) -> None:
    """Until SIGTERM or Ctrl-C. Requests that have begun are answered first."""
    with open_door(options) as door:
        # asyncio sets it for sockets that it makes itself; without it every answer waits 40 ms for an acknowledgement
        door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        announce(options, app.service, *door.getsockname()[:2])
        uvicorn.Server(uvicorn.Config(app, **UVICORN)).run(sockets=[door])
