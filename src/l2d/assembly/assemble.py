"""From a dataset, its experts and a cost to the training, validation and test split of a router."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from l2d.core.costs import cheapest, check_costs, expert_costs, noisy
from l2d.core.off_policy import doubly_robust
from l2d.core.results import ExtremeShares
from l2d.core.rewards import largest_known
from l2d.costs.cost import Cost
from l2d.data.arrays import Answers, Arrays, Panel, Seen, fingerprint_of
from l2d.data.split import Split
from l2d.data.splits import resample, split
from l2d.experts.cache import Cache
from l2d.experts.request import ComputeOptions, ExpertRequest, Experts
from l2d.lightning.threads import one_thread_if_small
from l2d.logs.model import LogModel, completed
from l2d.methods.method import Evidence
from l2d.utils.errors import L2DError, ParameterError, under
from l2d.utils.seeding import derive_seed, stream

Propensities = Literal["given", "estimated"]


@dataclass(frozen=True)
class Splits:
    """The data of a run.

    train: resampled, if `sampling` says so. train_costs: before resampling; they choose the best single expert. largest_cost:
    of the training rows, before noise. propensities: how those of a log are known; None if all costs are. categories,
    train_categories: of the test rows, and of the training rows before resampling. ids, train_ids: of the test rows, and of all
    others. evidence: for methods that take it. prices: β [p]; None if each row has its own. cost_facts: what the cost reports of
    its prices. cache: of the experts' predictions. expert_seconds: how long making or reading them took. price_weights: the
    regression of prices that differ between rows, [F + 1, p], if the log's model has fitted it to the training rows already.
    """

    train: Split
    validation: Split
    test: Split
    train_costs: Tensor
    largest_cost: float
    propensities: Propensities | None
    panel: Panel
    prices: Tensor | None
    num_classes: int
    evidence: Evidence | None
    categories: tuple[str, ...] | None
    train_categories: tuple[str, ...] | None
    ids: np.ndarray | None
    seen: Seen
    cost_facts: ExtremeShares | None
    cache: Cache
    expert_seconds: float
    train_ids: np.ndarray | None = None
    price_weights: Tensor | None = None


@dataclass(frozen=True)
class Division:
    """How rows are divided and completed: keys of conf/base.yaml. with_evidence, from_logs, prices_later: whether the method takes
    evidence, learns from a log as it is, and adds prices only to decide: prices that differ between rows are then left out of its
    training costs. everything: whether the router learns from its validation rows too, which then only show how training went."""

    validation_fraction: float
    fold: str | None
    sampling: str
    seed: int
    missing: str
    with_evidence: bool
    from_logs: bool
    prices_later: bool
    everything: bool = False


def assemble(
    arrays: Arrays,
    experts: Experts,
    cost: Cost,
    division: Division,
    *,
    coverage: Sequence[float] | None,
    data: str,
    data_dir: Path,
    cache: Cache,
    compute: ComputeOptions,
) -> Splits:
    """Validation rows are drawn from the training rows, by the experts' own seed or, if they have none, by the run's.
    Test rows are the dataset's own and are used only for the final score.

    data: the dataset's fingerprint. Only the training split gets noise and resampling. Resampling comes last: experts learn from
    the original rows, but methods count the resampled ones.
    """
    expert_seed = division.seed if experts.seed is None else experts.seed
    fraction, seed = division.validation_fraction, derive_seed(expert_seed, "validation")
    train, validation = split(arrays, fraction, seed, division.fold)
    if division.everything:
        train = torch.arange(len(arrays.train_labels))
    shares = None if coverage is None else [float(share) for share in coverage]
    known = cache.knowing(data=data, seed=expert_seed, train=fingerprint_of(train), coverage=shares)
    begun = time.monotonic()
    with blaming_experts():
        panel = experts.panel(ExpertRequest(arrays, train, coverage, expert_seed, known, data_dir, compute))
        if len(panel.names) < 2:
            raise ParameterError("coverage", f"{len(panel.names)} expert; routing needs at least 2", coverage)
    expert_seconds = time.monotonic() - begun
    with under("cost"):
        cost.check_panel(panel)
        prices = None if cost.by_row else cost.prices(panel, train)
        part = partial(priced_split, cost, prices)
        whole = part(arrays.train_inputs, train, panel.train, arrays.train_labels)
        held_out = part(arrays.train_inputs, validation, panel.train, arrays.train_labels)
        everything = torch.arange(len(arrays.test_labels))
        test = part(arrays.test_inputs, everything, panel.test, arrays.test_labels)
        facts = cost.facts(panel, train)
    propensities: Propensities | None = None
    train_costs = price_weights = None
    if any(part.costs.isnan().any() for part in (whole, held_out, test)):
        propensities = "estimated" if whole.answers.propensities is None else "given"
        with one_thread_if_small(whole.source.numel()):
            model = LogModel(whole, panel.names)
            held_out, test = model.judged(held_out), model.judged(test)
        train_costs = doubly_robust(whole.costs, model.own)
        price_weights = model.prices if division.sampling == "none" else None
        if not division.from_logs:
            whole = replace(whole, costs=completed(whole.costs, model.own, division.missing))
    largest = largest_known(whole.costs)
    if division.prices_later and whole.prices.ndim == 2:
        whole = replace(whole, costs=whole.costs - whole.prices, without_prices=True)
    if cost.noise:
        costs = noisy(whole.costs, cost.noise, cost.noise_kind, stream(division.seed, "cost noise"))
        whole = replace(whole, costs=costs)
    evidence: Evidence | None = None
    if division.with_evidence:
        evidence, held_out = take_evidence(whole, held_out, panel.learned)
    chosen_by = whole.whole_costs if train_costs is None else train_costs
    return Splits(
        train=sampled(whole, chosen_by, division),
        validation=held_out,
        test=test,
        train_costs=chosen_by,
        largest_cost=largest,
        propensities=propensities,
        panel=panel,
        prices=prices,
        num_classes=arrays.num_classes,
        evidence=evidence,
        categories=arrays.categories,
        train_categories=arrays.train_categories and tuple(arrays.train_categories[row] for row in train.tolist()),
        ids=arrays.ids,
        seen=arrays.seen,
        cost_facts=facts,
        cache=known,
        expert_seconds=expert_seconds,
        train_ids=arrays.train_ids,
        price_weights=price_weights,
    )


@contextmanager
def blaming_experts() -> Iterator[None]:
    """Errors inside are reported under experts; those of the coverage and the classes under the keys where they come from."""
    try:
        with under("experts"):
            yield
    except ParameterError as error:
        key = {"experts.coverage": "setup.coverage", "experts.num_classes": "dataset.label"}.get(error.parameter)
        if key is None:
            raise
        raise ParameterError(key, error.problem, error.value) from error.__cause__


def priced_split(
    cost: Cost, prices: Tensor | None, source: Tensor, rows: Tensor, answers: Answers, labels: Tensor
) -> Split:
    """prices: β [p]; None if each row has its own. answers, labels: of all rows of `source`."""
    answers = answers[rows]
    paid = cost.row_prices(answers) if prices is None else prices
    costs = expert_costs(answers.errors, paid)
    if len(source):  # l2d.fit has no test rows
        check_costs(costs, ~answers.errors.isnan())
    return Split(source, rows, answers, costs, paid, labels[rows])


def sampled(whole: Split, costs: Tensor, division: Division) -> Split:
    """Resampled by the cheapest expert, according to the noisy costs; in a log to the doubly robust ones."""
    if division.sampling == "none":
        return whole
    return whole.take(resample(cheapest(costs), division.sampling, stream(division.seed, "sampling")))


def take_evidence(train: Split, validation: Split, learned: bool) -> tuple[Evidence, Split]:
    """Outcomes of the experts on rows that they did not learn from, and the remaining validation rows.

    Evidence comes from the training rows. If the experts learned from those, it comes from every second validation row of each
    label: a method is never validated on rows that it learned from.
    """
    split = train
    if learned:
        if len(validation) < 2:
            raise L2DError(
                "validation_fraction: the method learns from half of the validation rows and needs two; raise it"
            )
        half = torch.zeros(len(validation), dtype=torch.bool)
        half[validation.labels.argsort(stable=True)[::2]] = True
        split, validation = validation.take(half), validation.take(~half)
    return Evidence(split.whole_costs - split.prices, split.prices, split.labels), validation
