"""The splits, and that costs belong to their rows."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from l2d.assembly.assemble import assemble, sampled, take_evidence
from l2d.config import check, compose
from l2d.core.costs import cheapest
from l2d.costs.cost import Cost, ErrorCost
from l2d.costs.extreme import ExtremePrices
from l2d.costs.prices import PriceList
from l2d.data.arrays import Answers, Arrays, Panel
from l2d.data.sets.digits import Digits
from l2d.data.splits import Split
from l2d.experts.cache import Cache
from l2d.experts.request import ComputeOptions, ExpertRequest
from l2d.experts.synthetic import SyntheticExperts
from l2d.methods.method import Method
from l2d.utils.errors import L2DError

QUIET: dict[str, Any] = {"noise": 0.0, "noise_kind": "multiplicative"}
FREE = ErrorCost(**QUIET)
SETTINGS = check(compose()).settings


class Learner(Method):
    takes_evidence = True


def priced(scale: float = 1.0, **noise: Any) -> Cost:
    return PriceList(prices="coverage", scale=scale, error_price=None, **{**QUIET, **noise})


def build(cost: Cost = FREE, arrays: Arrays | None = None, experts: Any = None, **changes: Any) -> Any:
    """Digits and setup III unless said otherwise. changes: of the settings, and coverage."""
    coverage = changes.pop("coverage", [0.4, 0.2, 0.2, 0.1, 0.1])
    method = Learner if changes.pop("with_evidence", False) else Method
    rows = Digits().load(Path()) if arrays is None else arrays
    request = ExpertRequest(rows, torch.arange(0), coverage, 0, Cache(Path(), "digits"), Path(), ComputeOptions())
    asked = SyntheticExperts() if experts is None else experts
    return assemble(request, asked, cost, replace(SETTINGS, **changes), method)


def as_rows(images: torch.Tensor) -> list[bytes]:
    return [image.numpy().tobytes() for image in images]


def test_sizes_and_disjointness() -> None:
    """1,437 training rows: a stratified tenth is validation. Digits has no two equal images, so bytes tell rows apart."""
    data = build()
    splits = [as_rows(split.inputs) for split in (data.train, data.validation, data.test)]
    assert [len(rows) for rows in splits] == [1293, 144, 360]
    assert len({row for rows in splits for row in rows}) == len({*as_rows(Digits().load(Path()).train_inputs)}) + 360
    assert all({*one}.isdisjoint(other) for one, other in combinations(splits, 2))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"coverage": [0.97, 0.03]}, r"^setup\.coverage=\[0\.97, 0\.03\]: expert 2 "),
        ({"coverage": [1.0]}, r"^setup\.coverage=.*at least 2"),
        ({"fold": "1/5000"}, "fold=1/5000"),
        ({"validation_fraction": 0.9999}, "validation_fraction"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(L2DError, match=words):
        build(**changes)


def test_seed_moves_validation_and_experts_but_not_test_images() -> None:
    one, other = build(seed=0), build(seed=1)
    assert torch.equal(one.test.inputs, other.test.inputs)
    assert not torch.equal(one.test.costs, other.test.costs)
    assert {*as_rows(one.validation.inputs)} != {*as_rows(other.validation.inputs)}
    assert torch.equal(one.train.costs, build(seed=0).train.costs)


@pytest.mark.parametrize("cost", [FREE, priced()])
def test_costs_belong_to_their_rows(cost: Cost) -> None:
    data = build(cost)
    for split in (data.train, data.validation, data.test):
        wrong = (split.answers.predictions != split.labels[:, None]).double()
        assert torch.equal(split.costs, wrong + split.prices)
        # the expert that owns the label's class is right
        owner = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 3, 4])[split.labels]
        assert torch.equal(split.costs.gather(1, owner[:, None])[:, 0], split.prices[owner])


class Buggy(ErrorCost):
    seed = None

    def panel(self, _: ExpertRequest) -> Panel:
        raise ZeroDivisionError

    def prices(self, panel: Panel, train: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        raise ZeroDivisionError


def test_a_bug_in_a_class_of_the_users_comes_with_its_key() -> None:
    for key in ("experts", "cost"):
        given: dict[str, Any] = {key: Buggy(**QUIET)}
        with pytest.raises(ZeroDivisionError) as caught:
            build(**given)
        assert caught.value.__notes__ == [f"in {key}"]


class Counted(ErrorCost):
    def prices(self, panel: Panel, train: torch.Tensor) -> torch.Tensor:
        return super().prices(panel, train) + len(train)


def test_prices_are_scaled_on_every_split() -> None:
    coverage = torch.tensor([0.4, 0.2, 0.2, 0.1, 0.1]).double()
    data = build(priced(scale=0.5))
    torch.testing.assert_close(data.prices, coverage / 2)
    for split in (data.train, data.validation, data.test):
        torch.testing.assert_close(split.costs, split.answers.errors + coverage / 2)
    assert torch.equal(build(priced(scale=0.0)).train.costs, build().train.costs)
    data = build(Counted(**QUIET))
    assert data.validation.prices.tolist() == [len(data.train)] * 5


def test_extreme_prices_are_those_of_clean_training_rows() -> None:
    """Whatever noise and sampling make of them afterwards, and not those of the test rows."""
    coverage = [0.7, 0.2, 0.1]
    data = build(ExtremePrices(**QUIET), coverage=coverage)
    noisy = ExtremePrices(noise=0.5, noise_kind="multiplicative")
    other = build(noisy, coverage=coverage, sampling="over")
    found = data.cost_facts
    assert found == other.cost_facts
    assert data.prices.tolist() == found.prices
    assert found.expert == "expert 1"
    share = float((cheapest(data.train.costs) == 0).double().mean())
    assert found.share_train == pytest.approx(share)
    assert found.share_test == pytest.approx(float((cheapest(data.test.costs) == 0).double().mean()))
    assert abs(share - 0.95) < 0.06
    assert build().cost_facts is None


def test_noise_is_on_the_training_split_alone() -> None:
    clean, noisy = build(priced()), build(priced(noise=0.2))
    assert not torch.equal(clean.train.costs, noisy.train.costs)
    assert torch.equal(noisy.train.costs, build(priced(noise=0.2)).train.costs)
    for name in ("validation", "test"):
        assert torch.equal(getattr(clean, name).costs, getattr(noisy, name).costs)
    one, other = (build(priced(noise=0.2), seed=s).train.costs / build(priced(), seed=s).train.costs for s in (0, 1))
    assert not torch.allclose(one, other)  # factors of the same places, whatever the rows
    assert float(noisy.train.costs.max()) > noisy.largest_cost == clean.largest_cost == float(clean.train.costs.max())


@pytest.mark.parametrize("sampling", ["over", "under"])
def test_sampling_is_of_the_training_split_alone(sampling: str) -> None:
    """Each expert is the cheapest as often, by the noisy costs; each row keeps its own image, costs, price and label."""
    plain, sampled = build(priced(noise=0.2)), build(priced(noise=0.2), sampling=sampling)
    sizes = torch.bincount(cheapest(plain.train.costs))
    target = int(sizes.max() if sampling == "over" else sizes.min())
    assert torch.bincount(cheapest(sampled.train.costs)).tolist() == [target] * 5
    place = {row: i for i, row in enumerate(plain.train.rows.tolist())}
    back = torch.tensor([place[row] for row in sampled.train.rows.tolist()])
    for part in ("inputs", "costs", "labels"):
        assert torch.equal(getattr(sampled.train, part), getattr(plain.train, part)[back])
    assert torch.equal(sampled.train.answers.errors, plain.train.answers.errors[back])
    assert len(sampled.train) == 5 * target
    for name in ("validation", "test"):
        assert torch.equal(getattr(plain, name).costs, getattr(sampled, name).costs)
        assert torch.equal(getattr(plain, name).rows, getattr(sampled, name).rows)
    assert torch.equal(sampled.train_costs, plain.train.costs)  # what the best single expert is chosen on
    assert sampled.cache == plain.cache  # and trained experts are the same


def test_sampling_keeps_prices_of_their_rows() -> None:
    prices = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    split = Split(torch.zeros(9, 1), torch.tensor([4, 7]), Answers(prices), prices, prices, torch.tensor([0, 1]))
    taken = split.take(torch.tensor([1, 1, 0]))
    assert taken.rows.tolist() == [7, 7, 4]
    assert taken.prices.tolist() == [[3, 4], [3, 4], [1, 2]]


class Learned(SyntheticExperts):
    def panel(self, request: ExpertRequest) -> Panel:
        return replace(super().panel(request), learned=True)


def evidence_of(splits: Any) -> Any:
    return splits.evidence


@pytest.mark.parametrize(("experts", "name"), [(SyntheticExperts(), "train"), (Learned(), "validation")])
def test_evidence_is_of_rows_that_experts_did_not_learn_from(experts: SyntheticExperts, name: str) -> None:
    """Whatever is drawn twice, or left out, for the router. Errors are without the price."""
    plain = build(priced(), experts=experts)
    assert plain.evidence is None
    whole: Split = getattr(plain, name)
    rows = every_second(whole.labels) if name == "validation" else torch.arange(len(whole)) >= 0
    split = whole.take(rows)
    for how in ("none", "over", "under"):
        data = build(priced(), experts=experts, sampling=how, with_evidence=True)
        evidence = evidence_of(data)
        torch.testing.assert_close(evidence.errors, split.answers.errors)
        assert torch.equal(evidence.labels, split.labels)
        assert torch.equal(evidence.prices, plain.prices)
        # what was learned from does not judge
        before = plain.validation.rows
        assert torch.equal(data.validation.rows, before[~rows] if name == "validation" else before)


def test_evidence_has_the_noise_of_the_training_costs() -> None:
    """Experts are known by the noisy costs; validation stays clean."""
    noisy = build(priced(noise=0.2), sampling="under", with_evidence=True)
    errors = evidence_of(noisy).errors
    assert torch.equal(errors, noisy.train_costs - noisy.train.prices)
    assert not torch.equal(errors, evidence_of(build(priced(), with_evidence=True)).errors)
    whole = build(priced(noise=0.2), experts=Learned()).validation
    clean = build(priced(noise=0.2), experts=Learned(), with_evidence=True)
    torch.testing.assert_close(evidence_of(clean).errors, whole.answers.errors[every_second(whole.labels)])


def every_second(labels: torch.Tensor) -> torch.Tensor:
    rows, place = torch.zeros(len(labels), dtype=torch.bool), 0
    for label in sorted(set(labels.tolist())):
        for row in (labels == label).nonzero().flatten().tolist():
            rows[row], place = place % 2 == 0, place + 1
    return rows


def test_evidence_of_a_single_validation_row_leaves_none_to_judge() -> None:
    data = build(experts=Learned())
    one = data.validation.take(torch.arange(len(data.validation)) == 0)
    with pytest.raises(L2DError, match="validation_fraction"):
        take_evidence(data.train, one, learned=True)


def test_the_experts_seed_is_in_the_name_of_what_is_kept() -> None:
    """Even where the split does not tell seeds apart: data that say themselves which rows are for validation."""

    fixed = replace(Digits().load(Path()), validation=torch.arange(100))
    assert len({build(seed=seed, arrays=fixed).cache.entry for seed in (0, 0, 1)}) == 2
    with pytest.raises(L2DError, match=r"^fold=1/2: .*for validation"):
        build(fold="1/2", arrays=fixed)
    # The seed, the data and the settings are the same.
    plain, again, other = (build(FREE, validation_fraction=share).cache.entry for share in (0.1, 0.1, 0.3))
    assert plain == again != other
    assert build(coverage=[0.5, 0.2, 0.1, 0.1, 0.1]).cache.entry != plain


def test_experts_with_a_seed_of_their_own_are_shared_by_the_runs() -> None:
    """So is the validation split: what experts learned from must not become validation under another seed. Noise is the run's."""
    one, other = (build(priced(noise=0.2), experts=SyntheticExperts(seed=5), seed=seed) for seed in (0, 1))
    assert torch.equal(one.train.rows, other.train.rows)
    assert torch.equal(one.test.costs, other.test.costs)
    assert one.cache == other.cache
    assert not torch.equal(one.train.costs, other.train.costs)


def test_which_rows_are_drawn_again_goes_by_the_seed() -> None:
    """Two of the first expert's 40 rows are kept beside the second expert's two."""
    costs = torch.tensor([[0.0, 1.0]] * 40 + [[1.0, 0.0]] * 2)
    whole = Split(costs, torch.arange(42), Answers(costs), costs, torch.zeros(2), torch.full((42,), -1))
    drawn = [sampled(whole, whole.costs, "under", seed).rows.tolist() for seed in (0, 0, 1, 2)]
    assert drawn[0] == drawn[1]
    assert len({*map(tuple, drawn)}) == 3
    assert all(rows[2:] == [40, 41] and len(rows) == 4 for rows in drawn)


def test_the_seconds_are_those_of_the_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("l2d.assembly.assemble.time", SimpleNamespace(monotonic=iter([10.0, 17.5]).__next__))
    assert build().expert_seconds == 7.5
