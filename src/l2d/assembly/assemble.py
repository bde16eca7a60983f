"""From a dataset, its experts and a cost to the training, validation and test split of a router."""

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from l2d.config.schema import Settings
from l2d.core.costs import cheapest, check_costs, largest_known, noisy
from l2d.core.off_policy import doubly_robust
from l2d.core.results import ExtremeShares
from l2d.costs.cost import Cost
from l2d.data.arrays import Answers, Arrays, Panel, fingerprint_of
from l2d.data.splits import Split, resample, split
from l2d.experts.cache import Cache
from l2d.experts.request import ExpertRequest, Experts
from l2d.lightning.threads import one_thread_if_small
from l2d.logs.model import fit_log_model
from l2d.methods.method import Evidence, Method
from l2d.utils.errors import L2DError, ParameterError, under
from l2d.utils.seeding import derive_seed, stream

Propensities = Literal["given", "estimated"]


@dataclass(frozen=True)
class Splits:
    train: Split  # resampled, if `sampling` says so
    validation: Split
    test: Split
    train_costs: Tensor  # before resampling; they choose the best single expert
    panel: Panel
    prices: Tensor | None  # β [p]; None if each row has its own
    arrays: Arrays  # of which these are the rows
    train_categories: tuple[str, ...] | None  # before resampling
    cost_facts: ExtremeShares | None
    cache: Cache  # of the experts' predictions
    expert_seconds: float = 0.0  # to make or read them
    propensities: Propensities | None = None  # the source of a log's; None if all costs are known
    price_weights: Tensor | None = None  # PriceModel's, if the log's model has fitted it to the training rows already
    evidence: Evidence | None = None
    largest_cost: float = 0.0  # of the training rows, before noise


def assemble(
    request: ExpertRequest,
    experts: Experts,
    cost: Cost,
    settings: Settings,
    method: type[Method],
    *,
    everything: bool = False,
) -> Splits:
    """Divide the rows, ask the experts, price their answers, complete a log, sample. Only the training split gets noise and,
    last, resampling: experts learn from the original rows, methods from the resampled ones. everything: the router learns from its
    validation rows too; they only show how training went."""
    arrays = request.arrays
    seed = settings.seed if experts.seed is None else experts.seed  # the experts' own, if they have one
    train, validation = split(arrays, settings.validation_fraction, derive_seed(seed, "validation"), settings.fold)
    if everything:
        train = torch.arange(len(arrays.train_labels))
    shares = None if request.coverage is None else [float(share) for share in request.coverage]
    cache = request.cache.knowing(seed=seed, train=fingerprint_of(train), coverage=shares)
    request = replace(request, train=train, seed=seed, cache=cache)
    panel, seconds = ask(experts, request)
    with under("cost"):
        found = price(request, panel, cost, validation)
    known = complete(replace(found, expert_seconds=seconds), cost, settings, method)
    learned, evidence, held_out = training_costs(known.train, cost, settings.seed, method), None, known.validation
    if method.takes_evidence:
        evidence, held_out = take_evidence(learned, held_out, panel.learned)
    chosen_by = learned.whole_costs if known.propensities is None else known.train_costs
    return replace(
        known,
        train=sampled(learned, chosen_by, settings.sampling, settings.seed),
        validation=held_out,
        train_costs=chosen_by,
        largest_cost=largest_known(known.train.costs),
        evidence=evidence,
    )


def ask(experts: Experts, request: ExpertRequest) -> tuple[Panel, float]:
    begun = time.monotonic()
    with under("experts"):
        panel = experts.panel(request)
    if len(panel.names) < 2:
        raise ParameterError("setup.coverage", f"{len(panel.names)} expert; routing needs at least 2", request.coverage)
    return panel, time.monotonic() - begun


def price(request: ExpertRequest, panel: Panel, cost: Cost, validation: Tensor) -> Splits:
    cost.check_panel(panel)
    arrays, train = request.arrays, request.train
    prices = None if cost.by_row else cost.prices(panel, train)
    part, own = partial(priced, cost, prices), (panel.train, arrays.train_labels)
    learned = part(arrays.train_inputs, train, *own)
    return Splits(
        train=learned,
        validation=part(arrays.train_inputs, validation, *own),
        test=part(arrays.test_inputs, torch.arange(len(arrays.test_labels)), panel.test, arrays.test_labels),
        train_costs=learned.costs,
        panel=panel,
        prices=prices,
        arrays=arrays,
        train_categories=arrays.train_categories and tuple(arrays.train_categories[row] for row in train.tolist()),
        cost_facts=cost.facts(panel, train),
        cache=request.cache,
    )


def complete(splits: Splits, cost: Cost, settings: Settings, method: type[Method]) -> Splits:
    """Estimate the costs that a log does not know: doubly robust where they judge, and for training as the method needs them. If
    confounders decided who was asked, no method can learn from the log as it is."""
    train, ungraded = splits.train, None
    if not any(part.costs.isnan().any() for part in (train, splits.validation, splits.test)):
        return splits
    if cost.by_row and splits.panel.ungraded is not None:
        inputs, answers = splits.panel.ungraded
        rows = torch.arange(len(inputs))
        ungraded = priced(cost, None, inputs, rows, answers, torch.full_like(rows, -1))
    with one_thread_if_small(train.source.numel()):
        model = fit_log_model(train, splits.panel.names, ungraded)
        validation, test = model.judged(splits.validation), model.judged(splits.test)
    as_it_is = method.learns_from_logs and not splits.panel.confounded
    return replace(
        splits,
        train=train if as_it_is else model.completed(train, settings.missing, method.takes_prices_later),
        validation=validation,
        test=test,
        train_costs=doubly_robust(train.costs, model.own),
        propensities="estimated" if train.answers.propensities is None else "given",
        price_weights=model.inputs_prices if settings.sampling == "none" else None,
    )


def training_costs(train: Split, cost: Cost, seed: int, method: type[Method]) -> Split:
    if method.takes_prices_later and train.prices.ndim == 2:
        train = replace(train, costs=train.costs - train.prices, without_prices=True)
    if cost.noise:
        train = replace(train, costs=noisy(train.costs, cost.noise, cost.noise_kind, stream(seed, "cost noise")))
    return train


def priced(cost: Cost, prices: Tensor | None, source: Tensor, rows: Tensor, answers: Answers, labels: Tensor) -> Split:
    """prices: β [p]; None if each row has its own. answers, labels: of all rows of `source`."""
    answers = answers[rows]
    paid = cost.row_prices(answers) if prices is None else prices
    costs = answers.errors + paid
    if len(source):  # l2d.fit has no test rows
        check_costs(costs, ~answers.errors.isnan())
    return Split(source, rows, answers, costs, paid, labels[rows])


def sampled(whole: Split, costs: Tensor, sampling: str, seed: int) -> Split:
    """Resample by the cheapest expert according to `costs`: the noisy ones, or the doubly robust ones of a log."""
    return whole if sampling == "none" else whole.take(resample(cheapest(costs), sampling, stream(seed, "sampling")))


def take_evidence(train: Split, validation: Split, learned: bool) -> tuple[Evidence, Split]:
    """Outcomes of the experts on rows that they did not learn from, and the remaining validation rows: a method is never validated
    on its evidence. If the experts learned from the training rows, it is every second validation row of each label."""
    split = train
    if learned:
        if len(validation) < 2:
            raise L2DError("validation_fraction: the method learns from half of these rows and needs two; raise it")
        half = torch.zeros(len(validation), dtype=torch.bool)
        half[validation.labels.argsort(stable=True)[::2]] = True
        split, validation = validation.take(half), validation.take(~half)
    return Evidence(split.whole_costs - split.prices, split.prices, split.labels), validation
