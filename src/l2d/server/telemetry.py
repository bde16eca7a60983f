"""Traces and metrics of gateway requests for OpenTelemetry, by its conventions for generative AI. OTEL_* variables configure it."""

import os
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode

from l2d.server.calls import EMBEDDINGS, OK, ChatAnswer
from l2d.server.gateway import Exchange
from l2d.server.upstreams import tokens_in


class Telemetry:
    """spans, metrics: where they go, if not to the exporters that the environment configures."""

    def __init__(self, spans: SpanProcessor | None = None, metrics: MetricReader | None = None) -> None:
        resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "l2d")})
        self.tracing = TracerProvider(resource=resource)
        self.tracing.add_span_processor(spans or BatchSpanProcessor(OTLPSpanExporter()))
        self.metering = MeterProvider([metrics or PeriodicExportingMetricReader(OTLPMetricExporter())], resource)
        self.tracer, meter = self.tracing.get_tracer("l2d"), self.metering.get_meter("l2d")
        self.seconds = meter.create_histogram("gen_ai.client.operation.duration", "s")
        self.tokens = meter.create_histogram("gen_ai.client.token.usage", "{token}")

    def close(self) -> None:
        self.tracing.shutdown()
        self.metering.shutdown()

    async def answer(self, way: Exchange, headers: Mapping[str, str], began: int) -> ChatAnswer:
        """way.answer(), within a span that ends with the answer's last byte. began: nanoseconds since 1970."""
        kind, model = "embeddings" if way.chat.path == EMBEDDINGS else "chat", str(way.chat.body["model"])
        about = {"gen_ai.operation.name": kind, "gen_ai.provider.name": "l2d", "gen_ai.request.model": model}
        span = self.tracer.start_span(f"{kind} {model}", extract(headers), SpanKind.CLIENT, start_time=began)
        way.ended = partial(self.end, span, way, began, about)
        try:
            found = await way.answer()
        except BaseException as error:
            way.ended(None, type(error).__name__)
            raise
        if isinstance(found.content, bytes):
            way.ended(found.usage, None if found.status == OK else str(found.status))
        return found

    def end(self, span: Span, way: Exchange, began: int, about: dict[str, str], usage: Any, fault: str | None) -> None:
        if way.expert:
            about |= {"gen_ai.response.model": way.model, "l2d.expert": way.expert}
        if fault is not None:
            about["error.type"] = fault
            span.set_status(StatusCode.ERROR)
        counted = zip(("input", "output"), tokens_in(usage or {}), strict=True)
        used = {kind: number for kind, number in counted if isinstance(number, int)}
        span.set_attributes(about | {f"gen_ai.usage.{kind}_tokens": number for kind, number in used.items()})
        decision = way.decision
        known = {name: getattr(decision, name) for name in ("run", "decided_by", "propensity", "price")}
        cost = decision.expected_cost(decision.expert)
        known |= {"decision_id": decision.id, "choice": decision.expert, "expected_cost": cost}
        span.set_attributes({f"l2d.{name}": value for name, value in known.items() if value is not None})
        span.end()
        self.seconds.record((time.time_ns() - began) / 1e9, about)
        for kind, number in used.items():
            self.tokens.record(number, about | {"gen_ai.token.type": kind})
