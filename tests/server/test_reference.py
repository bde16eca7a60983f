"""docs/serving.md names every endpoint, key, header, metric and status."""

import re
from pathlib import Path

import pytest
from tests.server.helpers import make_service, text_run

from l2d.commands.serve import make_serve_parser
from l2d.server import app as module
from l2d.server.bodies import OutcomeBody, RouteBody
from l2d.server.metrics import ServerMetrics
from l2d.server.upstreams import UpstreamEntry

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")


def test_endpoints(tmp_path: Path) -> None:
    service = make_service(text_run(tmp_path).path, tmp_path / "log.sqlite")
    app = module.make_app(service)
    service.log.close()
    paths = {path for path in app.paths if path.count("/") and "docs" not in path}
    assert {"/v1/route", "/v1/outcomes", "/v1/chat/completions", "/metrics", "/admin/reload"} <= paths
    for path in paths:
        told = path.replace("{name:path}", "NAME")
        assert re.search(rf"`(GET|POST) {told}`", PAGE), path


@pytest.mark.parametrize("kind", [RouteBody, OutcomeBody])
def test_keys(kind: type[RouteBody] | type[OutcomeBody]) -> None:
    for name in kind.model_fields:
        assert re.search(rf"^\| [^|]*`{name}`", PAGE, re.MULTILINE), name


def test_upstream_keys() -> None:
    for name in UpstreamEntry.__annotations__:
        assert f"\n  {name}: " in PAGE, name


def test_metrics() -> None:
    names = {metric.name: metric.type for metric in ServerMetrics().registry.collect()}
    for name, kind in names.items():
        assert f"| `{name}{'_total' if kind == 'counter' else ''}` |" in PAGE, name


def test_headers_and_statuses() -> None:
    source = Path(module.__file__).read_text(encoding="utf-8")
    for header in set(re.findall(r'"(x-l2d-[a-z-]+)"', source)):
        assert f"| `{header}` |" in PAGE, header
    for parameter in re.findall(r"(x_l2d_\w+): Annotated", source):
        assert f"`{parameter.replace('_', '-')}" in PAGE, parameter
    for status in set(re.findall(r"(?:problem|HTTPException)\((\d{3})", source)) - {"500"}:
        assert re.search(rf"^\| [\d, ]*{status}\b", PAGE, re.MULTILINE), status


def test_options() -> None:
    """Those that are no decisions, which l2d route explains, and those that need no word."""
    known = {option for action in make_serve_parser()._actions for option in action.option_strings}
    for option in known - {"-h", "--help", "--port", "--batch", "--trust"}:
        assert option in PAGE + "--confidence", option
    for option in re.findall(r"`(--[a-z-]+)", PAGE):
        assert option in {*known, "--all", "--run"}, option  # of l2d log and l2d evaluate
