"""The typed content of metrics.json, the result of a finished run; no torch. A field with a default is left out if it is None."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from l2d.utils.errors import L2DError
from l2d.utils.parameters import clearest_problem
from l2d.utils.plain import adapter

# Raise it whenever a key of metrics.json is added, removed or changes its meaning: runs with another number are refused.
SCHEMA_VERSION: Final = 6


class _Strict:  # no unknown keys, no numbers in quotes, no NaN
    __pydantic_config__: ClassVar[dict[str, Any]] = {"strict": True, "extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True)
class Score(_Strict):
    deferral_loss: float  # error_rate + mean_price
    error_rate: float
    mean_price: float
    ratios: list[float]  # the share of the inputs sent to each expert
    standard_error: float | None  # of the deferral loss, over rows; None: one row


@dataclass(frozen=True)
class Baselines(_Strict):
    best_single: Score  # chosen on training costs, like the majority's
    random: Score
    oracle: Score | None = None  # None, like the majority: a log does not know which expert is the cheapest on a row
    majority: Score | None = None
    nearest_neighbours: Score | None = None  # for inputs that are rows of numbers
    category_table: Score | None = None  # for data with categories: the best single expert of each


@dataclass(frozen=True)
class ExpertAlone(_Strict):
    name: str
    error_rate: float
    price: float
    standard_error: float | None  # of the sum of both, over rows; None: one row


# Standard errors by which the guard wants the router to be cheaper: by known costs, and by costs that a log estimates.
KNOWN, ESTIMATED = 0.0, 1.0


@dataclass(frozen=True)
class GuardEvidence(_Strict):
    """The gain of the router, with its offsets, over the best single expert on training (or validation) rows."""

    best_constant: str
    gain: float  # mean of paired differences
    standard_error: float | None  # None: one row


@dataclass(frozen=True)
class GuardedScore(Score):
    constant: str | None  # the expert that gets every input
    offsets: list[float] | None  # added to the experts' scores
    validation: GuardEvidence  # what the guard was fitted to
    test: GuardEvidence  # cross_validate: each fold under a guard that is fitted to the other four

    @property
    def changes_decisions(self) -> bool:
        return self.constant is not None or self.offsets is not None


@dataclass(frozen=True)
class PlanEvidence(_Strict):
    """For method=plan, whose plans are judged like experts, after the `singles` real ones."""

    singles: int
    simple: Score  # the best plan but the learned one, chosen on training costs
    gain: GuardEvidence  # of the guarded router over the best single expert


@dataclass(frozen=True)
class CategoryScore(_Strict):
    rows: int
    deferral_loss: float
    best_single: float
    oracle: float | None


@dataclass(frozen=True)
class Estimate(_Strict):
    value: float
    standard_error: float | None  # None: one row


@dataclass(frozen=True)
class OffPolicyValue(_Strict):
    """A deferral loss, estimated from a log (core/off_policy.py)."""

    direct: Estimate
    snips: Estimate | None
    doubly_robust: Estimate


@dataclass(frozen=True)
class LoggedOutcomes(_Strict):
    """The value of the routing by a log. All other scores of the run are the doubly robust ones."""

    asked: list[float]  # the share of the rows on which each expert was asked
    propensities: Literal["given", "estimated"]
    policy: Estimate  # what the log's own choices cost
    router: OffPolicyValue
    guarded: OffPolicyValue
    best_single: OffPolicyValue
    effective_rows: list[float]  # of each expert: (Σ w)² / Σ w², of weights w = 1/propensity
    rare: float | None  # the share of rows on which some propensity is below .02; None: not all are known
    flip_strength: float  # the least factor on the odds of being asked, by something unseen, that flips the verdict
    explored_deviation: float  # of the gain of one decision, in the log of a server with --explore 0.1
    rows_per_day: float | None  # with an outcome; None: the table has no times


@dataclass(frozen=True)
class DecisionLosses(_Strict):
    validation: float
    test: float


@dataclass(frozen=True)
class RowCounts(_Strict):
    train: int
    validation: int
    test: int


@dataclass(frozen=True)
class ExtremeShares(_Strict):
    """The prices that cost=extreme found, and the strongest expert's share of the oracle's decisions under them."""

    expert: str
    prices: list[float]
    target: float
    share_train: float
    share_test: float


@dataclass(frozen=True)
class Capabilities(_Strict):
    """The abilities and needs of the router's method and network, so that readers of a run need not know their classes."""

    takes_prices_later: bool
    has_posterior: bool
    estimates_costs: bool
    needs_labels: bool
    reads_text: bool


@dataclass(frozen=True)
class RoutingMetrics(Score):
    baselines: Baselines
    confusion: list[list[int]] | None  # row: the oracle's expert, column: the router's; None: there is no oracle
    collapsed_expert: int | None  # counted from 1; None: the router has not collapsed
    prices: list[float]  # means, if they differ between rows
    experts: list[ExpertAlone]


@dataclass(frozen=True)
class RunMetrics(RoutingMetrics):
    """The content of metrics.json; scores are of the test split unless they say otherwise."""

    schema_version: Literal[6]
    capabilities: Capabilities
    evaluation: Literal["holdout", "cross_validate"]  # cross_validate: every row is a test row of one of five folds
    validation: Score  # cross_validate: the mean over the folds
    guarded: GuardedScore
    decision: str
    method_buffers: dict[str, Any]  # what the method keeps beside the network's weights
    rows: RowCounts
    checkpoint: str
    epochs: int
    kept_epoch: int
    by_category: dict[str, CategoryScore] | None = None
    by_decision: dict[str, DecisionLosses] | None = None
    calibration: list[list[float]] | None = None  # weight, mean estimate and observed share of each bin
    extreme: ExtremeShares | None = None
    log: LoggedOutcomes | None = None
    plans: PlanEvidence | None = None

    def as_json(self) -> dict[str, Any]:
        return adapter(RunMetrics).dump_python(self, exclude_defaults=True)

    @property
    def rho(self) -> list[float]:
        return self.method_buffers.get("rho", [])


def read_metrics(file: Path) -> RunMetrics:
    """The metrics.json of a finished run. A damaged file, or one of another schema version, is refused."""
    from pydantic import ValidationError

    try:
        return adapter(RunMetrics).validate_json(file.read_bytes())
    except ValidationError as error:
        raise L2DError(f"{file}: {_problem(error.errors(include_url=False))}; force=true re-runs it") from None


def _problem(errors: list[Any]) -> str:
    """The version comes first: a file of another version is expected to have other keys."""
    for error in errors:
        if error["loc"] == ("schema_version",):
            found = "none" if error["type"] == "missing" else error["input"]
            return f"has schema_version {found}, this version of l2d reads {SCHEMA_VERSION}"
    problem = clearest_problem(errors)
    return f"damaged ({': '.join(filter(None, ['.'.join(map(str, problem.path)), problem.sentence]))})"
