"""Simple routers as methods: no epoch, prices that may change, the same folder as any other run."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import DictConfig
from tests.running import build, folder_of, train

from l2d import Router
from l2d.assembly.build import without_epochs
from l2d.config import check, compose
from l2d.data.sets.digits import Digits
from l2d.methods.simple import SimpleRouter
from l2d.utils.errors import ParameterError

NAMES = ("knn", "clusters", "linear", "linear_plugin", "mix")


@pytest.mark.parametrize("name", NAMES)
def test_it_trains_for_no_epoch(name: str, tiny: Callable[..., DictConfig]) -> None:
    experiment = check(tiny(f"method={name}", "checkpoint=best"))
    changed = without_epochs(experiment)
    assert (changed.recipe.epochs, changed.settings.checkpoint) == (0, "last")
    assert changed.plain == experiment.plain
    other = check(tiny("method=mild"))
    assert without_epochs(other) is other


@pytest.mark.slow
@pytest.mark.measured
@pytest.mark.parametrize("name", ["clusters", "mix"])
def test_a_run_and_its_router(name: str, tiny: Callable[..., DictConfig]) -> None:
    """On images of digits, which it reads as rows of pixels, it is far below the best single expert."""
    cfg = tiny(f"method={name}", "checkpoint=best", "cost=error_plus_cost")
    metrics = train(cfg)
    assert (metrics["epochs"], metrics["kept_epoch"], metrics["capabilities"]["takes_prices_later"]) == (0, 0, True)
    assert metrics["deferral_loss"] < 0.8 * metrics["baselines"]["best_single"]["deferral_loss"]
    folder = folder_of(cfg)
    saved = np.load(folder / "test.npz")
    assert (saved["expected_errors"] >= 0).all()
    images = Digits().load(Path()).test_inputs.numpy()
    router = Router.load(folder, raw=True)
    assert [router.experts.index(choice.expert) for choice in router.route(images)] == saved["decisions"].tolist()
    dear = {name: 0.0 if name == router.experts[1] else 5.0 for name in router.experts}
    assert {choice.expert for choice in router.at(dear).route(images)} == {router.experts[1]}


@pytest.mark.slow
def test_a_table_of_categories(tmp_path: Path) -> None:
    """It sees nothing but the category, and knows what to do with a new one."""
    lines = ["topic,correct_a,correct_b", *(f"{'xy'[i % 2]},{i % 2},{1 - i % 2}" for i in range(60))]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    given = ["dataset=table", f"dataset.path={tmp_path / 'table.csv'}", "setup.experts=null", f"runs_dir={tmp_path}"]
    given += ["dataset.text=topic", "dataset.category=topic", "method=category_table", "trainer.accelerator=cpu"]
    cfg = compose(given)
    assert train(cfg)["deferral_loss"] == 0.0
    router = Router.load(folder_of(cfg))
    assert [choice.expert for choice in router.route(["y", "x"])] == ["a", "b"]
    assert router.route(["z"])[0].expected_costs == pytest.approx({"a": 0.5, "b": 0.5})


def test_a_number_that_the_rows_do_not_allow(tiny: Callable[..., DictConfig]) -> None:
    for name in ("knn", "clusters"):
        with pytest.raises(ParameterError, match=r"^method\.k=5000: "):
            train(tiny(f"method={name}", "method.k=5000"))
        with pytest.raises(ParameterError, match=r"^method\.k=0: "):
            check(compose([f"method={name}", "method.k=0"]))


def test_right_is_what_the_costs_say_without_the_prices(tiny: Callable[..., DictConfig]) -> None:
    data, router = build(tiny("method=linear", "cost=error_plus_cost"))
    split = data.splits.train
    assert isinstance(router.method, SimpleRouter)
    rows = router.method.fit_rows(split.inputs, split.costs, split.labels, split.prices)
    torch.testing.assert_close(rows.right, 1 - split.answers.errors.double())
    assert rows.prices is not None
    torch.testing.assert_close(rows.prices, split.prices)
    by_row = torch.stack([split.prices, 3 * split.prices])
    again = router.method.fit_rows(split.inputs, split.costs, split.labels, by_row)
    assert again.prices is not None
    torch.testing.assert_close(again.prices, 2 * split.prices)
