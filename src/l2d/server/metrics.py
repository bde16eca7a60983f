"""The metrics that Prometheus reads at /metrics. No label holds a prompt, a key or an id."""

import math
import os
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
SHARED = "PROMETHEUS_MULTIPROC_DIR"  # the folder in which prometheus_client adds up the counts of several processes
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class ServerMetrics:
    """A registry of its own, so that several servers in one process do not share counts."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # they would double the page
        self.registry = here = CollectorRegistry()
        counter, histogram = partial(Counter, registry=here), partial(Histogram, registry=here)
        self.requests = counter("l2d_requests", "requests", ["endpoint", "status"])
        self.seconds = histogram("l2d_request_seconds", "seconds to answer", ["endpoint"], buckets=BUCKETS)
        self.choices = counter("l2d_choices", "queries by expert, and by who decided", ["expert", "by"])
        self.guarded = counter("l2d_guard", "choices that the guard changed", ["action"])
        self.fallbacks = counter("l2d_fallbacks", "experts that failed and were passed over", ["expert", "reason"])
        self.retries = counter("l2d_retries", "further calls of an expert whose server failed", ["expert"])
        self.calls = histogram("l2d_calls", "calls of decisions that follow a plan", buckets=range(1, 9))
        self.spend = counter("l2d_spend", "prices of the experts that were chosen or answered", ["expert"])
        self.outcomes = counter("l2d_outcomes", "outcomes recorded")
        self.wrong = counter("l2d_outcome_cost", "sum of the costs in recorded outcomes, without prices")
        self.errors = counter("l2d_errors", "what went wrong", ["kind"])
        self.batch = histogram("l2d_batch_queries", "queries that shared a forward pass", buckets=SIZES)
        own_gauge = partial(Gauge, registry=here, multiprocess_mode="liveall")  # every process has its own value
        self.far = own_gauge("l2d_far_share", "share of the last inputs that are far from the training rows")
        self.far.set(math.nan)  # not known yet
        about = "mean cost of the candidate less that of the run, and its 95 % interval"
        self.difference = own_gauge("l2d_candidate_difference", about, ["part"])
        self.resting = own_gauge("l2d_resting", "servers of an expert that rest because they failed", ["expert"])
        self.run = own_gauge("l2d_run", "1 for the run that decides", ["run"])

    def count_error(self, kind: str) -> None:
        self.errors.labels(kind).inc()

    def count_spend(self, expert: str, price: float | None) -> None:
        if price is not None:
            self.spend.labels(expert).inc(price)

    def show(self) -> bytes:
        """The metrics of all processes, if several serve."""
        if SHARED not in os.environ:
            return generate_latest(self.registry)
        forget_the_dead(Path(os.environ[SHARED]))
        all_of_them = CollectorRegistry()
        MultiProcessCollector(all_of_them)  # type: ignore[no-untyped-call]
        return generate_latest(all_of_them)


def forget_the_dead(folder: Path) -> None:
    """A process that was killed leaves its gauges behind. Its counts stay: they are part of the sums."""
    for file in folder.glob("gauge_live*.db"):
        try:
            os.kill(int(file.stem.rpartition("_")[2]), 0)
        except ProcessLookupError:
            file.unlink(missing_ok=True)
        except PermissionError:  # somebody else's, so it lives
            continue
