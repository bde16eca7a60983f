"""A trained router, asked again: what the run itself decided on its test rows is the reference."""

import json
import math
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from tests.data.sets.test_table import Cells, write
from tests.router import finished
from tests.router.finished import ASKED, CELLS, PRICED, SPLIT, TEST, N, Ran, Untrained, query_rows, trained, untrained

import l2d
from l2d.config import check, compose, groups
from l2d.core.guard import Guard, HeldOut
from l2d.data.sets.digits import Digits
from l2d.data.text.pretrained import MINILM, locate
from l2d.methods.method import Method
from l2d.methods.priced import Priced
from l2d.router.choices import Choice
from l2d.router.router import Router
from l2d.router.trained import allowed_experts, inputs_of, takes_prices
from l2d.runs.artifact.exported import FILE, RouterDescription, read_weights, write_weights
from l2d.runs.folder import RunFolder
from l2d.training.score import RoutedRows, held_out
from l2d.training.walk import train
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.text import own_version

DIGITS = ["router.width=4", "recipe.batch_size=128", "recipe.optimizer.lr=0.01"]
# Text takes more than two epochs, or a higher rate, before it goes to more than one expert.
LIVELY = ["checkpoint=best", "router.dropout=0", "recipe.optimizer.lr=0.03", "recipe.epochs=4"]


def test_expected_errors_of_other_methods(tmp_path: Path) -> None:
    """one_vs_all learns whole costs; with listed prices the error is the rest. Nothing is told if prices are in the costs."""
    router = Router.load(untrained(tmp_path, "method=one_vs_all", *PRICED, "cost.scale=0.5").path)
    [choice] = router.route(query_rows("x", "y", "flag")[:1])
    costs: Any = choice.expected_costs
    wanted = {"a": costs["a"] - 0.25, "b": costs["b"] - 0.05, "c": costs["c"] - 0.15}
    assert choice.expected_errors == pytest.approx(wanted)
    router = replace(router, description=replace(router.description, prices=None))  # as l2d.fit(X, costs) leaves it
    [choice] = router.route(query_rows("x", "y", "flag")[:1])
    assert (choice.expected_errors, choice.expected_prices) == (None, None)
    # σ(f_k) estimates 1 − c_k/scale. The scale is the largest cost, 1.25: at f = log 3, where σ = 3/4, the cost is 1.25/4.
    log3 = float(np.log(3))
    found: Any = router.method.expected_costs(torch.tensor([[log3, 0.0, -log3]]))
    assert found.tolist() == [pytest.approx([0.3125, 0.625, 0.9375])]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return trained(tmp_path_factory.mktemp("digits"), Digits().load(Path()).test_inputs.numpy(), *DIGITS)


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    given = ["method=mild", "cost=error_plus_cost", "cost.prices=[0.1,0.2,0.3]", "decision=posterior"]
    return trained(tmp_path_factory.mktemp("features"), query_rows("x", "y", "flag"), *SPLIT, *given)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    queries = [row["prompt"] for row in query_rows("prompt")]
    return trained(tmp_path_factory.mktemp("texts"), queries, *SPLIT, "dataset.text=prompt", *LIVELY)


def agree(choices: list[Choice], router: Router, saved: dict[str, np.ndarray]) -> None:
    decisions = saved["decisions" if router.raw else "guarded"]
    assert [choice.expert for choice in choices] == [router.experts[k] for k in decisions]
    posterior = [list((choice.posterior or {}).values()) for choice in choices]
    np.testing.assert_allclose(posterior, saved["posterior"], rtol=1e-4, atol=1e-7)
    assert all(choice.expected_costs is None for choice in choices)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["digits", "features", "texts"])
def test_decides_as_the_run_did(which: str, request: pytest.FixtureRequest) -> None:
    ran: Ran = request.getfixturevalue(which)
    for raw in (True, False):
        router = Router.load(ran.path, raw=raw)
        agree(router.route(ran.queries), router, ran.saved())
        [alone] = router.route(ran.queries[3:4])
        assert alone.expert == router.experts[ran.saved()["decisions" if raw else "guarded"][3]]
        assert router.route([]) == []
    assert len({*ran.saved()["decisions"].tolist()}) > 1


@pytest.mark.slow
@pytest.mark.measured
def test_a_file_with_the_columns_in_another_order(features: Ran, texts: Ran, tmp_path: Path) -> None:
    test_rows: Cells = {name: CELLS[name][N - TEST :] for name in ("flag", "x", "prompt", "y")}
    for name in ("queries.csv", "queries.parquet"):
        file = write(tmp_path, test_rows, name)
        for ran in (features, texts):
            router = Router.load(ran.path, raw=True)
            agree(router.route_file(file), router, ran.saved())


def test_rows_of_numbers_are_in_the_order_of_the_columns(features: Ran) -> None:
    """The columns were chosen by themselves: y, flag and x, in the file's order."""
    router = Router.load(features.path, raw=True)
    assert router.description.seen.features == ("y", "flag", "x")
    as_lists = [[row["y"], row["flag"], row["x"]] for row in features.queries]
    for queries in (as_lists, np.array(as_lists, dtype=np.float64), torch.tensor(as_lists)):
        agree(router.route(queries), router, features.saved())


@pytest.mark.slow
@pytest.mark.measured
def test_images_from_files(digits: Ran, tmp_path: Path) -> None:
    """Digits have pixels from 0 to 16, files from 0 to 255."""
    files = []
    for i, image in enumerate(digits.queries[:6]):
        files.append(tmp_path / f"{i}.png")
        Image.fromarray(np.rint(image[..., 0] * (255 / 16)).astype(np.uint8)).save(files[-1])
    router = Router.load(digits.path)
    assert router.route(files) == router.route([str(file) for file in files]) == router.route(digits.queries[:6])
    larger = tmp_path / "large.jpg"
    Image.fromarray(np.full((64, 48, 3), 200, dtype=np.uint8)).save(larger)
    assert router.route([larger])[0].expert in router.experts
    (tmp_path / "text.png").write_text("no image")
    for bad, said in ((tmp_path / "text.png", "not an image"), (tmp_path / "none.png", "no such file")):
        with pytest.raises(L2DError, match=said):
            router.route([bad])


def test_the_header_says_what_is_needed(features: Ran, digits: Ran, texts: Ran) -> None:
    found = []
    for ran in (features, digits, texts):
        with safe_open(ran.path / FILE, framework="pt") as content:
            found.append(json.loads(content.metadata()["l2d"]))
    rows, images, text = found
    assert (rows["experts"], rows["prices"], rows["input"]["encoder"]) == (["a", "b", "c"], [0.1, 0.2, 0.3], None)
    assert (images["num_classes"], images["input"]["shape"]) == (10, [8, 8, 1])
    assert (text["input"]["text"], text["version"]) == ("prompt", own_version())
    assert text["input"]["encoder"]["_target_"] == "l2d.data.text.words.Words"
    description = read_weights(features.path / FILE)[1]
    assert RouterDescription.from_dict(json.loads(json.dumps(description.as_dict()))) == description


METHODS = sorted({*groups()["method"]} - {"category_table", "plan"})  # one sees a category, the other needs answers
QUICK = ("mild", "ldam", "cascade", "plugin")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in METHODS]
)
def test_every_method_routes(name: str, tmp_path: Path) -> None:
    run = untrained(tmp_path, *PRICED, "dataset.label=topic", f"method={name}", "sampling=over", guard=None)
    router, method = Router.load(run.path, raw=True), run.router.method
    for key, value in method.state_dict().items():
        assert torch.equal(router.method.state_dict()[key], value), key
    choices, decisions = router.route(run.queries), method.decide(run.outputs)
    assert [choice.expert for choice in choices] == [router.experts[k] for k in decisions]
    guarded, wanted = Router.load(run.path).route(run.queries), finished.held(run.splits, run.router)[1]
    assert [choice.expert for choice in guarded] == [router.experts[k] for k in wanted]
    assert [choice.guard is not None for choice in guarded] == (wanted != decisions).tolist()
    assert (choices[0].posterior is not None) == method.has_posterior
    for values, expected in (
        ([choice.posterior for choice in choices], method.posterior(run.outputs) if method.has_posterior else None),
        ([choice.expected_costs for choice in choices], method.expected_costs(run.outputs)),
    ):
        if expected is None:
            assert set(values) == {None}
        else:
            np.testing.assert_allclose([list((row or {}).values()) for row in values], expected, rtol=1e-5)


def experts_of(router: Router, run: Untrained) -> list[str]:
    return [choice.expert for choice in router.route(run.queries)]


def with_guard(router: Router, guard: Guard) -> Router:
    return replace(router, description=replace(router.description, guard=guard))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Untrained:
    return untrained(tmp_path_factory.mktemp("plain"), "method=ce")


def test_a_raw_router_ranks_without_the_offsets(plain: Untrained) -> None:
    """Offsets of 9 and −9 put c first and a last; without them, the order is that of the scores."""
    run = plain
    router = with_guard(Router.load(run.path), Guard((-9.0, 0.0, 9.0), None, 0, 0.3, 0.1))
    assert {choice.ranking for choice in router.route(run.queries)} == {("c", "b", "a")}
    order = run.router.method.utilities(run.outputs).argsort(dim=1, descending=True)
    wanted = [tuple("abc"[k] for k in row) for row in order.tolist()]
    assert len({*wanted}) > 1
    assert [choice.ranking for choice in router.at(raw=True).route(run.queries)] == wanted


def test_the_guard_decides_unless_raw(plain: Untrained) -> None:
    """Expert c gets everything from the first two guards. A choice says what the guard did to it."""
    run = plain
    own = ["abc"[k] for k in run.router.method.decide(run.outputs)]
    assert {"c"} < {*own}
    weights, description = read_weights(run.path / FILE)
    for guard, wanted, did in (
        (Guard(None, 2, 2, 0.0, None), ["c"] * TEST, "fallback"),
        (Guard((-9.0, 0.0, 9.0), None, 0, 0.3, 0.1), ["c"] * TEST, "offsets"),
        (ASKED, own, None),
    ):
        write_weights(run.path / FILE, weights, replace(description, guard=guard))
        assert read_weights(run.path / FILE)[1].guard == guard
        router, raw = Router.load(run.path), Router.load(run.path, raw=True)
        assert experts_of(router, run) == wanted
        assert experts_of(raw, run) == own
        for choice, before in zip(router.route(run.queries), own, strict=True):
            changed = did is not None and before != "c"
            assert choice.guard == (f"{did}: without the guard, {before}" if changed else None)
        assert {choice.guard for choice in raw.route(run.queries)} == {None}
        assert raw.guard_note is None
        note = {None: "None", "fallback": "goes to c", "offsets": "offsets"}[did]
        assert note in str(router.guard_note)
        assert ("goes to c" in repr(router)) == (did == "fallback")
        assert "guard" not in repr(raw)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Untrained:
    return untrained(tmp_path_factory.mktemp("priced"), *PRICED, "method=cost_regression")


def priced_router(run: Untrained, kept: HeldOut | None, guard: Guard = ASKED) -> Router:
    """kept: what it is said to have expected on validation rows; None: nothing was kept."""
    held_out = None if kept is None else replace(kept, needed=guard.needed)
    return replace(with_guard(Router.load(run.path), guard), held_out=held_out)


FIRST = Guard(None, 0, 0, 0.0, None)  # sends everything to a


def right_at_any_price() -> HeldOut:
    """Validation rows on which the router knows the errors: it beats every single expert, and no offset can help it."""
    errors = torch.eye(3, dtype=torch.float64).repeat(30, 1) * 99
    return HeldOut(errors, errors.clone(), errors.mean(dim=0))


def test_other_prices(run: Untrained) -> None:
    """As if the run had had them. The router that is asked for them leaves the first one as it is, and shares its network."""
    expected: Any = run.router.method.expected_costs(run.outputs)
    errors, found = expected - torch.tensor([0.5, 0.1, 0.3]), list[tuple[Router, list[str]]]()
    router = priced_router(run, right_at_any_price(), FIRST)
    for prices in ([0.0, 0.02, 0.01], [0.0, 0.0, 0.0], [9.0, 0.0, 9.0]):
        wanted = ["abc"[k] for k in (errors + torch.tensor(prices)).argmin(1)]
        for given in (prices, dict(zip("cba", prices[::-1], strict=True))):
            other = router.at(given)
            found.append((other, wanted))
            assert other.network is router.network
            assert experts_of(other, run) == wanted
            costs = other.route(run.queries[:1])[0].expected_costs
            assert costs is not None
            assert [*costs.values()] == pytest.approx((errors[0] + torch.tensor(prices)).tolist(), rel=1e-5)
        assert {*experts_of(router, run)} == {"a"}
        assert torch.equal(router.method.state_dict()["prices"], torch.tensor([0.5, 0.1, 0.3]))
    assert all(experts_of(other, run) == wanted for other, wanted in found)  # each keeps its own prices
    assert len({tuple(wanted) for _, wanted in found}) > 1


def spread_errors() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    expected = torch.rand(100, 3, generator=draw) * torch.tensor([0.5, 1.5, 1.0])
    errors = (torch.rand(100, 3, generator=draw) < expected).double()
    return errors, expected, errors.mean(dim=0)


SPREAD = HeldOut(*spread_errors())


def test_within_a_budget(run: Untrained, tmp_path: Path) -> None:
    """It decides by the prices times the factor, tells costs with it, and is the same after a save."""
    router = priced_router(run, SPREAD)
    before: Any = router.route(run.queries[:1])[0].expected_costs
    other = router.at(budget=0.25)
    point: Any = other.operating_point
    assert point.factor > 1
    assert point.spend <= 0.25 + 1e-6
    assert (other.description.guard, other.description.factor) == (point.guard, point.factor)
    after: Any = other.route(run.queries[:1])[0].expected_costs
    more = [after[name] - before[name] for name in "abc"]
    assert more == pytest.approx([(point.factor - 1) * price for price in (0.5, 0.1, 0.3)], rel=1e-3)
    assert (router.operating_point, router.description.factor) == (None, 1)
    other.save(tmp_path / "saved")
    again = Router.load(tmp_path / "saved")
    assert experts_of(again, run) == experts_of(other, run)
    assert (again.operating_point, allowed_experts(again)) == (point, (1,))
    assert other.at(budget=0.25).operating_point == point  # of the prices, not of the prices times the factor
    errors = np.array([[0.0, 1.0, 1.0]] * len(run.queries))  # a is best, and costs .5; c costs .3
    assert (router.score(run.queries, errors=errors).best_single, allowed_experts(router)) == ("a", None)
    score = other.score(run.queries, errors=errors)
    assert (score.best_single, score.within_budget, allowed_experts(other)) == ("b", True, (1,))
    # With a budget below b's price, choosing for each query may be within it.
    again = replace(again, operating_point=replace(point, allowed=()))
    score = again.score(run.queries, errors=errors)
    assert (score.best_single, score.within_budget) == ("a", False)
    dear: Any = router.at(budget=0.5).operating_point
    assert (dear.factor, dear.spend > point.spend) == (1, True)


def test_no_budget_without_the_guard(run: Untrained, tmp_path: Path) -> None:
    """The fallback keeps the budget, so what is told of the spend would not be true."""
    router = priced_router(run, SPREAD)
    with pytest.raises(ParameterError, match=r"^budget=0\.25: .*guard"):
        router.at(raw=True).within(0.25)
    inside = router.within(0.25)
    inside.save(tmp_path / "saved")
    for without in (inside.at, inside.at([0.5, 0.1, 0.4]).at, partial(Router.load, tmp_path / "saved")):
        with pytest.raises(ParameterError, match=r"^raw=True: .*guard"):
            without(raw=True)


def test_other_prices_keep_the_budget(run: Untrained, tmp_path: Path) -> None:
    """Its confidence too, also after a save, and in the unit of training."""
    router, prices = priced_router(run, SPREAD), [0.6, 0.1, 0.2]
    router = replace(router, config={**router.config, "cost": {**router.config["cost"], "scale": 0.5}})
    inside = router.within(0.45, 0.9)
    inside.save(tmp_path / "saved")
    saved = Router.load(tmp_path / "saved")
    assert saved.operating_point == inside.operating_point
    for found, wanted in (
        (saved.at(prices), router.at(prices, budget=0.45, confidence=0.9)),
        (saved.at(prices, confidence=0.6), router.at(prices, budget=0.45, confidence=0.6)),
        (saved.at(prices, budget=0.3), router.at(prices, budget=0.3)),
        (saved.at(confidence=0.6), router.within(0.45, 0.6)),
    ):
        assert found.operating_point == wanted.operating_point
    assert takes_prices(saved)
    with pytest.raises(ParameterError, match=r"^budget=0\.45: .*least"):
        inside.at([1.0, 1.0, 1.0])
    assert router.at(prices).operating_point is None


def test_the_guard_of_a_log_wants_as_much_at_other_prices(run: Untrained, tmp_path: Path) -> None:
    priced_router(run, right_at_any_price(), Guard(None, 0, 0, 0.1, 0.2, needed=1.0)).save(tmp_path / "saved")
    assert Router.load(tmp_path / "saved").at([0.0, 0.02, 0.01]).description.guard.needed == 1.0


def test_no_budget_without_prices() -> None:
    """Nothing would be spent, so that any budget would be kept. With prices, it can be."""
    errors, expected, _ = spread_errors()
    router = l2d.fit(expected.numpy(), errors=errors.numpy(), method="knn", options={"progress": False})
    with pytest.raises(ParameterError, match=r"^budget=0\.25: .*prices"):
        router.within(0.25)
    prices = [0.5, 0.1, 0.3]
    point: Any = router.at(prices, budget=0.25).operating_point
    assert point == router.at(prices).within(0.25).operating_point
    assert 0.1 <= point.spend <= 0.25 + 1e-6


def test_budgets_that_cannot_be_kept(run: Untrained, tmp_path: Path) -> None:
    router = priced_router(run, SPREAD)
    with pytest.raises(ParameterError, match=r"^budget=0\.05: .*0\.1"):
        router.at(budget=0.05)
    with pytest.raises(ParameterError, match=r"^confidence=0\.9: needs a budget"):
        router.at([0.1, 0.1, 0.1], confidence=0.9)
    for value in (0.4, 1.0, 95.0, float("nan")):
        with pytest.raises(ParameterError, match=r"^confidence="):
            router.at(confidence=value, budget=0.25)
        with pytest.raises(ParameterError, match=r"^confidence="):
            router.at(confidence=value, max_error=0.5)
    with pytest.raises(ParameterError, match=r"^prices: missing"):
        router.at()
    router.config["cost"]["scale"] = 0.5  # one error costs two dollars: prices of 1, .2 and .6 dollars
    point: Any = router.within(0.5, 0.6).operating_point
    assert (point.budget, point.spend <= 0.5 + 1e-6, point.overspend <= 0.4) == (0.5, True, True)
    assert point == router.at(budget=0.5, confidence=0.6).operating_point
    router.config["cost"]["scale"] = 0
    router = replace(router, description=replace(router.description, prices=(0.0, 0.0, 0.0)))
    with pytest.raises(ParameterError, match=r"^budget=1: .*prices"):
        router.at(budget=1)
    router = replace(router, description=replace(router.description, prices=None))
    router.save(tmp_path / "saved")
    for whole in (router, Router.load(tmp_path / "saved")):
        for key, changed in (("budget", {"budget": 1}), ("prices", {"prices": [0.0, 0.0, 0.0]})):
            with pytest.raises(ParameterError, match=rf"^{key}: .*whole costs"):
                whole.at(**changed)
    without = priced_router(run, None)
    for key, given in (("budget", {"budget": 1}), ("prices", {"prices": [0.0, 0.0, 0.0]})):
        with pytest.raises(ParameterError, match=rf"^{key}: .*force=true"):
            without.at(**given)


def test_prices_later_for_a_run_without_any(tmp_path: Path) -> None:
    """cost.scale=0 leaves one unit, that of one error, for everything that is given later."""
    run = untrained(tmp_path, *PRICED, "cost.scale=0", "method=cost_regression")
    router, prices = priced_router(run, SPREAD), [0.5, 0.1, 0.3]
    [before] = router.route(run.queries[:1])
    assert (before.expected_prices, before.price_weight, router.prices.counted) == (None, None, False)
    other = router.at(prices)
    assert other.prices.counted
    [after] = other.route(run.queries[:1])
    assert after.expected_prices == pytest.approx(dict(zip("abc", prices, strict=True)))
    assert after.price_weight == 1
    errors = np.zeros((len(run.queries), 3))
    own: Any = other.score(run.queries, errors=errors).mean_price
    assert own == pytest.approx(other.score(run.queries, errors=errors, prices=prices).mean_price)
    assert own >= 0.1
    at_once: Any = router.at(prices, budget=0.25).operating_point
    assert (at_once.budget, at_once.spend <= 0.25 + 1e-6) == (0.25, True)
    assert at_once == other.within(0.25).operating_point


def test_a_method_that_takes_a_list_of_prices_and_no_others(run: Untrained, monkeypatch: pytest.MonkeyPatch) -> None:
    router, prices = priced_router(run, SPREAD), [0.2, 0.0, 0.1]
    wanted = experts_of(router.at(prices), run)
    monkeypatch.setattr(Priced, "rescale", Method.rescale)
    assert experts_of(router.at(prices), run) == wanted
    assert router.within(0.25).operating_point is not None


def test_the_note_says_why_every_query_goes_to_one_expert(run: Untrained) -> None:
    """With a gain of .8 the router is better by far, so the budget alone is the reason."""
    router = priced_router(run, SPREAD)
    for gain, error, why in ((0.01, 0.02, "standard error"), (0.8, 0.01, "within the budget")):
        note = str(with_guard(router, Guard(None, 1, 1, gain, error, 1.0)).guard_note)
        assert ("goes to b" in note, why in note) == (True, True)


def test_prices_of_a_score_go_by_name(run: Untrained) -> None:
    router, errors = priced_router(run, right_at_any_price()), np.zeros((TEST, 3))
    by_name = router.score(run.queries, errors=errors, prices={"c": 0.3, "a": 0.1, "b": 0.2})
    assert by_name == router.score(run.queries, errors=errors, prices=[0.1, 0.2, 0.3])
    assert by_name.single_losses == pytest.approx({"a": 0.1, "b": 0.2, "c": 0.3})
    assert router.plot(run.queries, errors=errors).axes[0].get_title() == f"{TEST} rows"
    router = replace(router, validation=router.score(run.queries, errors=errors))
    assert router.plot().axes[0].get_title() == f"{TEST} held-out rows"


def test_other_prices_have_a_guard_of_their_own(run: Untrained) -> None:
    """Expert b errs least, c next. The router expects nothing of a that validation bears out: it is let ask b or c at no price only
    where it is right, and where b is dear everything goes to c; at the prices of training the run's own guard holds."""
    errors = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 1.0]] * 50, dtype=torch.float64)
    wrong = HeldOut(errors, torch.tensor([[0.0, 0.5, 0.5]]).repeat(100, 1), errors.mean(dim=0))
    router = priced_router(run, wrong, FIRST)
    for prices, expert in (([0.0, 0.0, 0.0], "b"), ([0.0, 5.0, 0.0], "c"), ([0.5, 0.1, 0.3], "a")):
        other = router.at(prices)
        assert {*experts_of(other, run)} == {expert}
        assert f"goes to {expert}" in str(other.guard_note)
    assert {*experts_of(router.at([0.0, 0.0, 9.0], raw=True), run)} != {"b"}


def test_routers_are_compared_at_the_prices_of_the_first(run: Untrained) -> None:
    """The first sends all to a at .5, the second all to b, which costs the first .1 and the second nothing."""
    first = priced_router(run, right_at_any_price(), FIRST)
    second, errors = first.at([9.0, 0.0, 9.0]), np.zeros((TEST, 3))
    assert first.compare(second, run.queries, errors=errors).difference == pytest.approx(0.4)
    assert second.compare(first, run.queries, errors=errors).difference == pytest.approx(-9)
    turned = replace(second, description=replace(second.description, experts=second.experts[::-1]))
    with pytest.raises(ParameterError, match=r"^other: .*c, b, a"):
        first.compare(turned, run.queries, errors=errors)
    for given in ("costs", "errors"):
        with pytest.raises(ParameterError, match=rf"^{given}: must be \[{TEST}, 3\]"):
            first.score(run.queries, **{given: errors[1:]})


def test_what_is_saved(run: Untrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The description, and the files of the network as of the last save."""
    router = priced_router(run, None)
    for name in ("first", "second"):

        def keep(_: Any, folder: Path, name: str = name) -> None:
            (folder / "encoder").mkdir()
            (folder / "encoder" / name).touch()

        monkeypatch.setattr(type(router.network), "keep", keep)
        router.save(tmp_path / "saved")
    assert [file.name for file in (tmp_path / "saved" / "encoder").iterdir()] == ["second"]
    said = json.loads((tmp_path / "saved" / "router.json").read_text())
    assert said == {
        "version": own_version(),
        "experts": ["a", "b", "c"],
        "raw": False,
        "validation": None,
        "operating_point": None,
    }


def test_a_run_keeps_what_other_guards_are_fitted_to(tmp_path: Path) -> None:
    """The guard for the prices of training, made anew from it, is the run's own."""
    for more in (["method=cost_regression", "sampling=over"], ["method=plugin"]):
        run = untrained(tmp_path, *PRICED, "dataset.label=topic", *more)
        with torch.no_grad():
            outputs = run.router(run.splits.validation.inputs)
        rows = RoutedRows.of(run.router.method, run.splits.validation, outputs)
        kept = HeldOut(**held_out(run.router.method, rows, run.splits, run.splits.train_costs), needed=0.0)
        assert kept.guard_at(torch.tensor([0.5, 0.1, 0.3])) == finished.held(run.splits, run.router)[0]
        torch.testing.assert_close(kept.errors, run.splits.validation.answers.errors)
    run = untrained(tmp_path, "method=mild")
    outputs = run.router(run.splits.validation.inputs)
    rows = RoutedRows.of(run.router.method, run.splits.validation, outputs)
    assert held_out(run.router.method, rows, run.splits, run.splits.train_costs) == {}


def test_prices_that_the_method_has_learned(features: Ran) -> None:
    with pytest.raises(ParameterError, match=r"^prices: .*cost_regression"):
        Router.load(features.path).at([0.0, 0.0, 0.0])


def test_rho_is_that_of_the_run(tmp_path: Path) -> None:
    """The rule goes by the training costs, which are gone; asked of others it might refuse."""
    rho = ["method.rho.total=3", "method.rho.offset=-0.9", "method.rho.counts=reward_mass"]
    run = untrained(tmp_path, "method=mild", "decision=posterior", *rho)
    config = RunFolder(run.path).config()
    config["method"]["rho"]["offset"] = -1.0  # equal shares of 3 less 1: refused, were the rule asked again
    RunFolder(run.path).write_config(config)
    method = Router.load(run.path).method
    assert torch.equal(method.state_dict()["rho"], run.router.method.state_dict()["rho"])
    assert method.decision == "posterior"


def test_numbers_and_text_together(tmp_path: Path) -> None:
    run = untrained(tmp_path, "dataset.text=prompt", "dataset.features=[x]")
    router = Router.load(run.path)
    expected = [router.experts[k] for k in run.router.method.decide(run.outputs)]
    assert [choice.expert for choice in router.route(query_rows("prompt", "x", "y"))] == expected
    with pytest.raises(L2DError, match="prompt"):
        router.route(["only a text"])


def test_images_may_come_without_their_one_channel(digits: Ran) -> None:
    before = torch.get_rng_state()
    router = Router.load(digits.path)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(router.decide(digits.queries[..., 0]), router.decide(digits.queries))


# What is refused


def copied(ran: Ran, folder: Path) -> Path:
    shutil.copytree(ran.path, folder / "seed=0")
    return folder / "seed=0"


def one_line(run: Path) -> str:
    with pytest.raises(L2DError) as caught:
        Router.load(run)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_damaged_file_is_named(features: Ran, texts: Ran, tmp_path: Path) -> None:
    """So is one of another format or another run, and a folder without a finished run."""
    run = copied(features, tmp_path)
    whole = (run / FILE).read_bytes()
    flipped = bytearray(whole)
    flipped[-9] ^= 64
    header = whole.replace(b'"experts"', b'"experst"').replace(b'\\"experts\\"', b'\\"experst\\"')
    assert header != whole
    for bad in (b"", whole[:4], whole[:200], whole[:-1], bytes(flipped), b"\x00" * 100, header, whole + b"x"):
        (run / FILE).write_bytes(bad)
        assert f"{run / FILE}: damaged" in one_line(run)
        assert "force=true" in one_line(run)
    (run / FILE).write_bytes(whole.replace(b'\\"format\\": 2', b'\\"format\\": 1'))
    assert f"{own_version()} wrote" in one_line(run)
    config = RunFolder(texts.path).config()
    config["router"]["depth"] = 1
    (run / FILE).write_bytes(whole)
    RunFolder(run).write_config(config)
    assert "does not fit" in one_line(run)  # a file of another run
    (run / FILE).unlink()
    assert f"{run / FILE}: missing" in one_line(run)
    assert "force=true" in one_line(run)
    (run / "config.yaml").write_text("[")
    assert "config.yaml: damaged" in one_line(run)
    (run / "metrics.json").unlink()
    assert "not finished" in one_line(run)
    assert "no such folder" in one_line(tmp_path / "nowhere")
    assert "not a run's folder" in one_line(tmp_path)


@pytest.mark.slow
def test_killed_before_the_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """model.safetensors is whole by then, and the run is still unfinished; the same command ends it."""

    def killed(*_: Any) -> None:
        raise InterruptedError

    given = [f"dataset.path={write(tmp_path, CELLS)}", f"runs_dir={tmp_path / 'runs'}", "recipe.epochs=1"]
    experiment = check(compose([*finished.SMALL, *SPLIT, *given]))
    path = RunFolder.of(experiment.plain).path
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "finish", killed)
        with pytest.raises(InterruptedError):
            train(experiment)
    assert (path / FILE).exists()
    assert not RunFolder(path).finished
    assert "not finished" in one_line(path)
    before = (path / FILE).read_bytes()
    train(experiment)
    assert (path / FILE).read_bytes() == before  # the same run, the same bytes
    router = Router.load(path)
    agree(router.route(query_rows("x", "y", "flag")), router, Ran(path, None).saved())


BAD_QUERIES: list[tuple[str, Any, str]] = [
    ("texts", "a text", "must be a list"),
    ("texts", [3], "the text prompt"),
    ("texts", np.zeros((2, 3)), "the text prompt"),
    ("texts", [{"question": "why"}], "query 1: has no prompt"),
    ("features", ["a text"], "columns y, flag, x"),
    ("features", [[1, 2]], "(y, flag, x)"),
    ("features", [[1, 2, 3], [1]], "length"),
    ("digits", np.zeros((1, 8, 8, 1)), "must be uint8"),
    ("digits", [{"x": 1}], "8×8×1"),
]
BAD_FILES: list[tuple[str, Cells, str]] = [
    ("features", {"x": [1], "y": [1]}, "flag"),
    ("features", {"x": [1, ""], "y": [1, 2], "flag": [0, 1]}, "column x: "),
    ("digits", {"x": [1]}, "8×8×1"),
]


def test_bad_queries_and_files(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    names = ("texts", "features", "digits")
    routers = {name: Router.load(request.getfixturevalue(name).path) for name in names}
    for name, queries, said in BAD_QUERIES:
        with pytest.raises(L2DError, match=re.escape(said)):
            routers[name].route(queries)
    for name, cells, said in BAD_FILES:
        file = write(tmp_path, cells)
        with pytest.raises(L2DError, match=f"^{re.escape(str(file))}: .*{said}"):
            routers[name].route_file(file)


@pytest.mark.parametrize("raw", [False, True])
def test_a_query_without_a_text_goes_to_the_guards_expert(texts: Ran, tmp_path: Path, raw: bool) -> None:
    """Whatever it would say of the others, which are decided as if it were not there."""
    router = Router.load(texts.path, raw=raw)
    for best in range(3):
        guard = replace(ASKED, best=best)
        router = replace(router, description=replace(router.description, guard=guard))
        asked = [texts.queries[0], " \n", texts.queries[1], ""]
        found = router.route(asked)
        assert [choice.unread for choice in found] == [False, True, False, True]
        assert found[::2] == router.route(texts.queries[:2])
        gone = found[1]
        assert gone == found[3]
        assert gone.expert == gone.ranking[0] == router.experts[best]
        assert {*gone.ranking} == {*router.experts}
        assert (gone.posterior, gone.expected_costs, gone.expected_errors) == (None, None, None)
        assert router.decide(asked).tolist() == [router.experts.index(choice.expert) for choice in found]
        rows: Any = [{"prompt": None}, {"prompt": "why"}]
        given: list[Any] = [*([gap, "why"] for gap in (None, math.nan, pd.NA)), rows, np.array(["", "why"])]
        for others in given:
            assert [choice.unread for choice in router.route(others)] == [True, False]
        for name in ("queries.csv", "queries.parquet"):
            assert router.route_file(write(tmp_path, {"prompt": asked, "row": [1, 2, 3, 4]}, name)) == found
    assert [choice.unread for choice in router.route([""])] == [True]
    with pytest.raises(L2DError, match="query 1"):
        inputs_of(router, [""])


def test_ids_come_back_with_the_choices(texts: Ran, tmp_path: Path) -> None:
    """As they are written, zeros in front included, so that choices can be joined to what they are of."""
    router = Router.load(texts.path)
    cases: list[tuple[str, str, list[Any]]] = [
        ("queries.csv", "ID", ["007", "b,c", ""]),
        ("queries.parquet", "Id", [7, 8, None]),
        ("queries.parquet", "id", ["x", "y", "z"]),
    ]
    for name, column, ids in cases:
        file = write(tmp_path, {"prompt": texts.queries[:3], "topic": ["a", "b", "c"], column: ids}, name)
        choices = router.route_file(file)
        assert [choice.id for choice in choices] == ["" if one is None else str(one) for one in ids]
        assert [replace(choice, id=None) for choice in choices] == router.route(texts.queries[:3])


def test_paths_may_begin_with_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("l2d.router.router.export_router", lambda _, file: file.touch())
    Router.load(untrained(tmp_path, "dataset.features=[x]").path).save("~/saved")
    router = Router.load("~/saved")
    write(tmp_path, {"x": [1.0, 2.0]}, "queries.csv")
    assert len(router.route_file("~/queries.csv")) == 2
    router.export("~/router.pt2")
    assert (tmp_path / "router.pt2").exists()


def test_an_id_may_be_what_a_router_sees(tmp_path: Path) -> None:
    cells = finished.table()
    cells["id"] = [f"{row:03d}" for row in range(N)]
    run = untrained(tmp_path, "dataset.features=[id,x]", cells=cells)
    file = write(tmp_path, {"id": cells["id"][:3], "x": cells["x"][:3]}, "queries.csv")
    router = Router.load(run.path)
    numbers = np.array([[row, cells["x"][row]] for row in range(3)])
    choices = router.route_file(file)
    assert [choice.expert for choice in choices] == [choice.expert for choice in router.route(numbers)]
    assert [choice.id for choice in choices] == ["000", "001", "002"]


def test_a_table_of_images(tmp_path: Path) -> None:
    files = []
    for i, image in enumerate(Digits().load(Path()).train_inputs[:N].numpy()):
        files.append(f"{i}.png")
        Image.fromarray(15 * image[..., 0]).save(tmp_path / files[-1])
    cells = {"file": files, **{name: CELLS[name] for name in ("correct_a", "correct_b", "correct_c", "split")}}
    given = ["dataset.image=file", "dataset.image_size=8", "router=resnet18_slim", "recipe=small"]
    run = untrained(tmp_path, *given, cells=cells)
    router, wanted = Router.load(run.path), ["abc"[k] for k in run.router.method.decide(run.outputs)]
    queries = [tmp_path / file for file in files[-TEST:]]
    for choices in (router.route(queries), router.route_file(write(tmp_path, {"file": files[-TEST:]}))):
        assert [choice.expert for choice in choices] == wanted


@pytest.mark.slow
@pytest.mark.skipif(locate("minilm") == MINILM, reason="the package with MiniLM's weights is not installed")
def test_text_through_a_pretrained_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Embeddings depend, in the last digits, on what else is in the batch."""
    pytest.importorskip("transformers")
    queries = [row["prompt"] for row in query_rows("prompt")]
    ran = trained(tmp_path, queries, *SPLIT, "dataset.text=prompt", "router=minilm")
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    router = Router.load(ran.path)
    agree(router.route(ran.queries), router, ran.saved())
    assert router.route(["why " * 25_000])[0].expert in "abc"
    assert list(empty.iterdir()) == []
