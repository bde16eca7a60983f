"""l2d serve RUN: a trained router as a service, and a gateway to its experts."""

import argparse
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from l2d.commands.route import add_decision_flags, load_router
from l2d.utils.errors import ParameterError
from l2d.utils.extras import from_extra
from l2d.utils.user_errors import OneLineParser, answering, given_as_flags

if TYPE_CHECKING:  # they import torch
    from l2d.serving.server.service import RouterService, ServedRun

ADMIN, API = "L2D_ADMIN_TOKEN", "L2D_API_TOKEN"
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
  l2d serve RUN --upstreams upstreams.yaml --shadow large
  curl localhost:8080/v1/route -H 'content-type: application/json' -d '{{"text": "What is 2 + 2?"}}'"""


def make_serve_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="l2d serve", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("run", metavar="RUN", type=Path, help="the folder of a finished run, runs/.../seed=<s>")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--upstreams", metavar="FILE", type=Path, help="YAML: base_url, model, … of each expert")
    log = parser.add_argument_group("log")
    log.add_argument("--log", metavar="FILE", type=Path, default=Path("l2d_log.sqlite"), help="default: l2d_log.sqlite")
    kept = "what the log keeps of inputs (default: features, the numbers that the router saw)"
    log.add_argument("--keep", choices=("text", "features", "none"), default="features", help=kept)
    steps = parser.add_argument_group("safe steps")
    drawn = "draw the expert of this share of queries at random, and log propensities"
    steps.add_argument("--explore", metavar="SHARE", type=float, default=0.0, help=drawn)
    steps.add_argument(
        "--shadow", metavar="EXPERT", help="answer with this expert; log what the router would have done"
    )
    far = "if more than this share of the last inputs is far from the training rows, the guard's expert answers"
    steps.add_argument("--drift-limit", metavar="SHARE", type=float, help=far)
    add_decision_flags(parser)
    limits = parser.add_argument_group("limits")
    limits.add_argument("--threads", type=int, default=1, help="of torch, for a decision (default: 1)")
    limits.add_argument("--batch", type=int, default=64, help="most queries in one forward pass (default: 64)")
    limits.add_argument("--body-limit", metavar="MB", type=float, default=8.0, help="largest body (default: 8 MB)")
    return parser


def check_numbers_given(options: argparse.Namespace) -> None:
    for name, least, most in (("explore", 0, 1), ("drift_limit", 0, 1), ("port", 0, 65535), ("threads", 1, 1024)):
        value = getattr(options, name)
        if value is not None and not least <= value <= most:
            raise ParameterError(f"--{name.replace('_', '-')}", f"must be from {least} to {most}", value)
    for name in ("batch", "body_limit"):
        if not 0 < getattr(options, name) < float("inf"):
            raise ParameterError(f"--{name.replace('_', '-')}", "must be greater than 0", getattr(options, name))


def read_token(variable: str) -> str | None:
    """From the environment, or from the file that it names."""
    token, file = os.environ.get(variable), os.environ.get(f"{variable}_FILE")
    if token is None and file is not None:
        token = Path(file).read_text(encoding="utf-8").strip()
    if token is not None and not (token and token.isascii() and token.isprintable()):
        raise ParameterError(variable, "must be printable ASCII, and not empty")
    return token


def served_run(options: argparse.Namespace) -> "ServedRun":
    from l2d.serving.server.service import ServedRun, warmed_up

    return ServedRun(warmed_up(load_router(options)), str(options.run))


def make_service(options: argparse.Namespace) -> "RouterService":
    tokens = {"api_token": read_token(API), "admin_token": read_token(ADMIN)}
    run = served_run(options)
    from l2d.serving.server.outcome_log import OutcomeLog
    from l2d.serving.server.service import RouterService, ServeSettings, check_settings
    from l2d.serving.server.upstreams import read_upstreams

    upstreams = {} if options.upstreams is None else read_upstreams(options.upstreams, run.router.experts)
    settings = ServeSettings(
        keep=options.keep,
        explore=options.explore,
        shadow=options.shadow,
        drift_limit=options.drift_limit,
        upstreams=upstreams,
        largest_body=int(options.body_limit * 1e6),
        batch=options.batch,
        **tokens,
    )
    with given_as_flags():
        check_settings(settings, run.router)

    def load(folder: Path) -> "ServedRun":
        return served_run(argparse.Namespace(**{**vars(options), "run": folder}))

    return RouterService(run, OutcomeLog(options.log.expanduser()), settings, load)


def main(arguments: Sequence[str]) -> None:
    with answering("stopped"):
        options = make_serve_parser().parse_args(arguments)
        check_numbers_given(options)
        from l2d.runs.folder import RunFolder

        RunFolder(options.run.expanduser()).config()  # before anything slow is imported
        with from_extra("serve", "l2d serve"):
            import fastapi  # noqa: F401
            import httpx  # noqa: F401
            import prometheus_client  # noqa: F401
            import uvicorn
        import sklearn
        import torch

        torch.set_num_threads(options.threads)
        sklearn.set_config(skip_parameter_validation=True, assume_finite=True)  # a fifth of the time of a decision
        from l2d.serving.server.app import make_app

        service = make_service(options)
        try:
            serve(uvicorn, make_app(service), options)
        finally:
            service.log.close()


def serve(uvicorn: Any, app: Any, options: argparse.Namespace) -> None:
    """Until SIGTERM or Ctrl-C. Requests that have begun are answered first."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=30, lifespan="on", server_header=False
    )
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        door = socket.create_server((options.host, options.port), family=family)
    except OSError as error:
        raise ParameterError("--port", f"cannot listen on {options.host} ({error.strerror})", options.port) from error
    with door:
        # asyncio sets it for sockets that it makes itself; without it every answer waits 40 ms for an acknowledgement
        door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = door.getsockname()[:2]
        print(f"l2d serves {options.run} on http://{host}:{port}; log: {options.log}", file=sys.stderr, flush=True)
        uvicorn.Server(config).run(sockets=[door])
