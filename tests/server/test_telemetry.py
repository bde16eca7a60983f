"""Traces and metrics of the gateway, in the words of OpenTelemetry's conventions for generative AI."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.testclient import TestClient
from tests.router.finished import Untrained
from tests.server.helpers import CHAT, USAGE, FakeUpstream, make_service

from l2d.server.app import make_app
from l2d.server.telemetry import Telemetry

PARENT = "0af7651916cd43dd8448eb211c80319c"


def points(reader: InMemoryMetricReader) -> dict[str, list[Any]]:
    data: Any = reader.get_metrics_data()
    [metrics] = [scope.metrics for resource in data.resource_metrics for scope in resource.scope_metrics]
    return {one.name: list(one.data.data_points) for one in metrics}


def test_a_span_and_counts_for_each_request(run: Untrained, tmp_path: Path, servers: dict[str, FakeUpstream]) -> None:
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    service = make_service(run.path, tmp_path / "log.sqlite", upstreams=servers, explore=0.3)
    headers = {"traceparent": f"00-{PARENT}-b7ad6b7169203331-01"}
    with TestClient(
        make_app(service, Telemetry(SimpleSpanProcessor(spans), reader)), base_url="http://127.0.0.1"
    ) as client:
        answers = [
            client.post("/v1/chat/completions", json={**CHAT, "stream": stream}, headers=headers)
            for stream in (False, True)
        ]
        client.post("/v1/embeddings", json={"model": "b", "input": "x"})
        for behaviour in ("cut", "500"):
            for one in servers.values():
                one.behaviour = behaviour
            client.post("/v1/chat/completions", json={**CHAT, "stream": True})
        found, counts = spans.get_finished_spans(), points(reader)
    for span, answer in zip(found, answers, strict=False):
        about: Any = span.attributes
        expert = answer.headers["x-l2d-expert"]
        assert (span.name, f"{span.context.trace_id:032x}") == ("chat l2d", PARENT)
        assert about["gen_ai.operation.name"] == "chat"
        assert (about["gen_ai.request.model"], about["gen_ai.response.model"]) == ("l2d", f"model-{expert}")
        assert about["gen_ai.usage.input_tokens"] == USAGE["prompt_tokens"]
        assert about["gen_ai.usage.output_tokens"] == USAGE["completion_tokens"]
        assert (about["l2d.choice"], about["l2d.expert"]) == (expert, expert)
        assert round(about["l2d.propensity"], 6) in (0.8, 0.1)
        assert f"{about['l2d.expected_cost']:.6g}" == answer.headers["x-l2d-expected-cost"]
    assert (found[2].name, dict(found[2].attributes or {})["gen_ai.usage.output_tokens"]) == ("embeddings b", 0)
    assert [dict(span.attributes or {}).get("error.type") for span in found[3:]] == ["connection", "AllFailed"]
    assert sum(one.count for one in counts["gen_ai.client.operation.duration"]) == 5
    tokens = {(one.attributes["gen_ai.token.type"]): one.sum for one in counts["gen_ai.client.token.usage"]}
    assert tokens.keys() == {"input", "output"}
