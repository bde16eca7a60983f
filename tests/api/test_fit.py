"""A router from arrays: the training of `l2d train`, without a folder."""

import gc
import os
import pickle
import random
import re
import shutil
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import pandas as pd
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from matplotlib.patches import Rectangle
from tests.tiny_encoders import write_encoder

import l2d
from l2d.api.experiment import make_experiment
from l2d.api.fit import Outcomes, assemble_given
from l2d.assembly.make import make_dataset
from l2d.assembly.module import RouterModule
from l2d.config import CONF, Experiment, check, compose
from l2d.data.given import read_said
from l2d.networks.tabular import MLP
from l2d.router.trained import outputs_of
from l2d.utils.errors import L2DError, ParameterError

pytestmark = [pytest.mark.slow, pytest.mark.measured]
N = 240
Rows = tuple[np.ndarray, np.ndarray]


fit = partial(l2d.fit, method="mild")


def quick(epochs: int = 20, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"recipe.epochs": epochs, "progress": False, "trainer.accelerator": "cpu", **(more or {})}


QUICK: dict[str, Any] = {"options": quick()}


@pytest.fixture(scope="module")
def rows() -> Rows:
    """Expert 1 is right where the first feature is negative, expert 2 where it is not, expert 3 nowhere."""
    X = np.random.default_rng(0).normal(size=(N, 3))
    return X, np.stack([X[:, 0] > 0, X[:, 0] <= 0, np.ones(N)], axis=1).astype(float)


@pytest.fixture(scope="module")
def router(rows: Rows) -> l2d.Router:
    return fit(*rows, **QUICK)


def test_it_learns(router: l2d.Router, rows: Rows) -> None:
    assert [choice.expert for choice in router.route([[-2, 0, 0], [2, 0, 0]])] == ["expert 1", "expert 2"]
    score = router.score(*rows)
    assert score.deferral_loss < 0.1 < score.best_single_loss
    assert router.validation is not None
    assert router.validation.n == N // 10


def test_the_walk_is_that_of_the_command(rows: Rows, tmp_path: Path) -> None:
    """A table of the same rows, all but one of them for training, gives the same weights."""
    from tests.running import folder_of, train

    X, costs = rows
    frame = pd.DataFrame(X.astype(np.float32), columns=["a", "b", "c"])
    for k in range(3):
        frame[f"loss_{k}"] = costs[:, k]
    frame["split"] = "train"
    extra = frame.iloc[:1].assign(split="test")
    pd.concat([frame, extra]).to_csv(tmp_path / "table.csv", index=False)
    given = ["dataset=table", f"dataset.path={tmp_path / 'table.csv'}", "dataset.split=split", "progress=false"]
    given += ["method=mild", "recipe.epochs=3", "trainer.accelerator=cpu", f"runs_dir={tmp_path}"]
    cfg = compose(given)
    train(cfg)
    by_command = l2d.Router.load(folder_of(cfg)).network.state_dict()
    by_fit = fit(X.astype(np.float32), costs, options=quick(3)).network.state_dict()
    assert by_command.keys() == by_fit.keys()
    for name, value in by_command.items():
        assert torch.equal(value, by_fit[name]), name


def random_states() -> list[Any]:
    legacy: Any = np.random.get_state()  # noqa: NPY002
    return [torch.get_rng_state().tolist(), legacy[1].tolist(), random.getstate()]


def test_nothing_is_left_behind(rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """No files, temporary ones included, no output, no random number drawn from the caller's streams."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    states = random_states()
    fit(*rows, options=quick(1))
    assert random_states() == states
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == ""


def test_ctrl_c(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a KeyboardInterrupt, as in any function, and the next one works too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(RouterModule, "on_train_epoch_end", lambda _: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        fit(*rows, **QUICK)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_is_said_is_not_of_a_run(rows: Rows, capsys: Any) -> None:
    fit(*rows, options=quick(30, {"checkpoint": "best", "recipe.patience": 1}))
    assert capsys.readouterr().out == ""
    with pytest.raises(ParameterError, match=r"^logger=wandb: "):
        fit(*rows, options=quick(more={"logger": "wandb"}))
    with pytest.raises(ParameterError, match=r"^evaluation=cross_validate: "):
        fit(*rows, options=quick(more={"evaluation": "cross_validate"}))
    with pytest.raises(ParameterError, match=r"^tune\.folds: "):
        fit(*rows, options=quick(more={"tune.folds": 2}))


def test_the_default_method() -> None:
    """auto, unless the inputs are images. Options of a network want a method that trains it."""
    cost = {"name": "error"}
    names = {kind: make_experiment(kind, None, cost, {}).method.name for kind in ("rows", "texts", "images")}
    assert names == {"rows": "auto", "texts": "auto", "images": "mild"}
    assert make_experiment("texts", None, cost, {"router": "minilm_tuned"}).method.name == "mild"
    with pytest.raises(L2DError, match=r"^recipe\.epochs: .*method"):
        make_experiment("rows", None, cost, {"recipe.epochs": 3})


def test_inside_an_application_on_hydra() -> None:
    """Of the caller's own: it is still the application of this process afterwards."""
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        outer = GlobalHydra.instance().hydra
        assert make_experiment("rows", "mild", {"name": "error"}, {}).dataset.name == "arrays"
        assert GlobalHydra.instance().hydra is outer
    assert not GlobalHydra.instance().is_initialized()


class Mine(MLP):
    """A network of one's own."""


class Expected(l2d.Method):
    def __init__(self, *, factor: float = 1.0, **given: Any) -> None:
        super().__init__(**given)
        self.factor = factor

    def loss(self, outputs: torch.Tensor, costs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        return self.factor * (outputs.softmax(dim=-1) * costs).sum(dim=-1)


def test_a_loss_and_a_network_of_ones_own(rows: Rows, tmp_path: Path) -> None:
    own = {"method.factor": 3.0, "router._target_": f"{Mine.__module__}.Mine"}
    router = fit(*rows, method=Expected, options=quick(more=own))
    assert isinstance(router.network, Mine)
    assert isinstance(router.method, Expected)
    assert router.method.factor == 3
    assert router.score(*rows).deferral_loss < 0.1
    router.save(tmp_path / "kept")
    with pytest.raises(L2DError, match=re.escape(f"trust=['{Expected.__module__}']")):
        l2d.Router.load(tmp_path / "kept")
    again = l2d.Router.load(tmp_path / "kept", trust=[Expected.__module__])
    assert torch.equal(again.decide(rows[0]), router.decide(rows[0]))


class Sharper(Expected):
    def __init__(self, *, margin: float, **given: Any) -> None:
        super().__init__(**given)
        self.margin = margin


def test_a_class_that_cannot_be_made_or_found_again(rows: Rows) -> None:
    with pytest.raises(L2DError, match=r"^method\.margin: .*options=\{'method\.margin': "):
        fit(*rows, **QUICK, method=Sharper)
    for module in (Expected.__module__, "none"):
        with pytest.raises(L2DError, match=r"^method=.*top level"):
            fit(*rows, method=type("Expected", (Expected,), {"__module__": module}))
    for wrong in (3, int, Expected(costs=torch.zeros(2, 2), num_classes=0, decision="argmax")):
        with pytest.raises(L2DError, match=r"^method=.*l2d\.Method"):
            fit(*rows, method=wrong)  # type: ignore[arg-type]


def test_two_routers_compared(router: l2d.Router, rows: Rows) -> None:
    X, costs = rows
    other = fit(X, costs[:, ::-1].copy(), options=quick(5))  # learned the wrong experts
    found = router.compare(other, X, costs)
    losses = [each.score(X, costs).deferral_loss for each in (router, other)]
    assert found.difference == pytest.approx(losses[0] - losses[1], abs=1e-12)
    assert found.interval[1] < 0
    assert other.compare(router, X, costs).difference == -found.difference
    priced = router.score(X, errors=costs, prices=[0.5, 0.25, 0])
    assert priced.mean_price == pytest.approx(0.5 * priced.shares["expert 1"] + 0.25 * priced.shares["expert 2"])


def test_seeds(rows: Rows) -> None:
    one, same, other = (fit(*rows, options=quick(1) | {"seed": seed}) for seed in (1, 1, 2))
    first = torch.tensor([[0.5, 0.5, 0.5]])
    assert torch.equal(outputs_of(one, first), outputs_of(same, first))
    assert not torch.equal(outputs_of(one, first), outputs_of(other, first))


def test_saved_and_loaded(router: l2d.Router, rows: Rows, tmp_path: Path) -> None:
    router.save(tmp_path / "router")
    loaded = l2d.Router.load(tmp_path / "router")
    assert torch.equal(loaded.decide(rows[0]), router.decide(rows[0]))
    assert loaded.validation == router.validation
    loaded.save(tmp_path / "router")  # again, over itself
    assert torch.equal(pickle.loads(pickle.dumps(loaded)).decide(rows[0]), router.decide(rows[0]))
    few = fit(rows[0][:10], rows[1][:10], options=quick(1))  # one validation row has no interval, nor has JSON
    few.save(tmp_path / "few")
    assert l2d.Router.load(tmp_path / "few").validation == few.validation


def test_save_leaves_other_files_alone(router: l2d.Router, tmp_path: Path) -> None:
    router.save(tmp_path / "router")
    (tmp_path / "router" / "notes.txt").write_text("mine")
    router.save(tmp_path / "router")
    assert (tmp_path / "router" / "notes.txt").read_text() == "mine"
    assert not [file for file in (tmp_path / "router").iterdir() if file.name.startswith(".")]
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "router.json").write_text('{"name": "an app"}')
    with pytest.raises(ParameterError, match="not a saved router"):
        router.save(tmp_path / "project")
    (tmp_path / "router" / "router.json").unlink()
    with pytest.raises(L2DError, match="not finished"):  # half a save is no router
        l2d.Router.load(tmp_path / "router")


def test_a_router_for_other_prices_is_saved_with_its_guard(rows: Rows, tmp_path: Path) -> None:
    X, errors = rows
    router = fit(X, errors=errors, prices=[0, 5, 5], method="cost_regression", **QUICK)
    other = router.at([5, 0, 5])
    other.save(tmp_path / "other")
    loaded = l2d.Router.load(tmp_path / "other")
    assert (other.validation, {*other.decide(X).tolist()}, {*loaded.decide(X).tolist()}) == (None, {1}, {1})
    assert torch.equal(loaded.at([0, 5, 5]).decide(X), router.decide(X))


def test_the_score_on_held_out_rows_is_that_of_the_guarded_router() -> None:
    """There is nothing to learn, so the guard sends everything to one expert."""
    rng = np.random.default_rng(0)
    router = fit(rng.normal(size=(N, 3)), rng.random((N, 3)), options=quick(5))
    assert router.description.guard.constant is not None
    assert router.validation is not None
    assert router.validation.shares[router.experts[router.description.guard.constant]] == 1


def test_a_save_that_dies_half_way_leaves_no_router(
    router: l2d.Router, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights and config of two routers would be taken for one. router.json, which says that all is there, comes last."""
    router.save(tmp_path)
    moved, real = list[str](), Path.replace

    def replace(self: Path, target: Path) -> Path:
        if target.parent == tmp_path:
            assert not (tmp_path / "router.json").exists()
            moved.append(target.name)
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    router.save(tmp_path)
    assert sorted(moved[:-1]) == ["config.yaml", "model.safetensors"]
    assert moved[-1] == "router.json"


def test_plot(router: l2d.Router, rows: Rows, tmp_path: Path) -> None:
    dear = router.plot(rows[0], errors=rows[1], prices=[5, 5, 5])
    assert min(bar.get_width() for bar in dear.axes[0].patches if isinstance(bar, Rectangle)) >= 5
    for figure in (router.plot(), router.plot(*rows)):
        figure.savefig(tmp_path / "picture.png")
        assert (tmp_path / "picture.png").stat().st_size > 10_000
        (tmp_path / "picture.png").unlink()


def test_prices_of_experts_and_of_rows(rows: Rows) -> None:
    X, errors = rows
    dear = fit(X, errors=errors, prices=[0.0, 5.0, 5.0], **QUICK)
    assert {choice.expert for choice in dear.route(X)} == {"expert 1"}
    assert dear.validation is not None
    assert (dear.validation.mean_price, dear.validation.mean_error) == (0, dear.validation.deferral_loss)
    by_name = fit(X, errors=errors, prices={"expert 3": 5, "expert 1": 0, "expert 2": 5}, options=quick(1))
    assert by_name.description.prices == dear.description.prices == (0, 5, 5)
    by_row = np.zeros_like(errors)
    by_row[:, 0] = 5
    router = fit(X, errors=errors, prices=by_row, **QUICK)
    assert "expert 1" not in {choice.expert for choice in router.route(X)}
    assert router.validation is not None
    assert router.validation.mean_price is None
    score = dear.score(X, errors=errors, prices=[0.0, 5.0, 5.0])
    assert score.deferral_loss == pytest.approx(errors[:, 0].mean())
    dearer = dear.score(X, errors=errors, prices=[0.5, 5.0, 5.0])
    assert dearer.deferral_loss == pytest.approx(score.deferral_loss + 0.5)


def test_prices_in_dollars(rows: Rows) -> None:
    """A wrong answer costs $2, so $1 counts half an error: in the fit, in the score on held-out rows and in other scores."""
    X, errors = rows
    prices, options = [1.0, 1.0, 1.0], quick(more={"cost.error_price": 2})
    router = fit(X, errors=errors, prices=prices, method="linear", options=options)
    assert router.validation is not None
    scores = (router.validation, router.score(X, errors=errors), router.score(X, errors=errors, prices=prices))
    for score in scores:
        assert score.mean_price == pytest.approx(0.5)
        assert "$1.0000" in str(score)
        assert "$2" in str(score)
    found = router.at([2.0, 2.0, 2.0]).route(X[:1])[0].expected_prices
    assert found == pytest.approx(dict.fromkeys(router.experts, 2.0))


def test_prices_may_change_later(rows: Rows) -> None:
    X, errors = rows
    labels = np.where(X[:, 0] > 0, "b", "a")
    router = fit(X, errors=errors, prices=[0.1, 0.1, 0.1], labels=labels, method="plugin", **QUICK)
    assert router.score(X, errors=errors, prices=[0.1, 0.1, 0.1]).deferral_loss < 0.2
    # without prices: those that it decides by
    assert router.score(X, errors=errors) == router.score(X, errors=errors, prices=[0.1, 0.1, 0.1])
    assert router.at([3, 0, 3]).score(X, errors=errors).single_losses["expert 1"] > 3
    assert "3 numbers" in repr(router)
    for name in ("budget", "max_error"):
        with pytest.raises(ParameterError, match=f"^{name}=0.12: "):
            router.at(**dict[str, Any]({name: "0.12"}))
    assert set(router.at([3, 0, 3]).decide(X).tolist()) == {1}
    whole = fit(X, errors + 0.1, labels=labels, method="plugin", options=quick(1))
    with pytest.raises(ParameterError, match=r"^prices: .*whole costs"):
        whole.at([3, 0, 3])


def test_frames(router: l2d.Router, rows: Rows) -> None:
    X, costs = rows
    frame = pd.DataFrame(X, columns=["x", "y", "z"])
    named = fit(frame, pd.DataFrame(costs, columns=["small", "large", "none"]), **QUICK)
    assert named.experts == ("small", "large", "none")
    assert [choice.expert for choice in named.route([{"y": 0, "z": 0, "x": -2}])] == ["small"]
    shuffled = frame[["z", "x", "y"]]
    assert torch.equal(named.decide(shuffled), router.decide(torch.from_numpy(X).requires_grad_()))
    numbered, outcomes = pd.DataFrame(X), pd.DataFrame(costs, columns=["a", "b", "c"])
    router = fit(numbered, errors=outcomes, options=quick(1))
    assert router.experts == ("a", "b", "c")
    assert router.score(numbered, outcomes[["c", "a", "b"]]) == router.score(numbered, outcomes)
    for wrong in (outcomes[:-1], np.zeros((N, 2))):
        with pytest.raises(ParameterError, match=r"^costs: must be \[240, 3\]"):
            router.score(numbered, wrong)
    with pytest.raises(ParameterError, match="rows of costs"):
        l2d.deferral_scorer(type("Some", (), {"predict": lambda _, X: np.zeros(len(X), int)})(), X[:5], costs)


def test_texts() -> None:
    texts = [f"{'algebra' if i % 2 else 'history'} of chapter {i}" for i in range(N)]
    costs = np.stack([np.arange(N) % 2, 1 - np.arange(N) % 2], axis=1)
    router = l2d.fit(texts, costs, experts=["historian", "mathematician"], options={"progress": False})
    found = [choice.expert for choice in router.route(["the algebra of chapter 3", "the history of chapter 4"])]
    assert found == ["mathematician", "historian"]
    assert "text" in repr(router)
    column = pd.Series(texts, index=range(5, N + 5))
    assert torch.equal(router.decide(column), router.decide(texts))
    assert torch.equal(router.decide(np.array(texts)), router.decide(texts))
    frame = pd.DataFrame({"prompt": texts, "length": [float(len(text)) for text in texts]})
    both = l2d.fit(frame, costs, options={"dataset.text": "prompt", "progress": False})
    assert both.score(frame, costs).deferral_loss < 0.1


def test_a_fine_tuned_encoder_outlives_the_training(tmp_path: Path) -> None:
    """Its tokenizer is read when the first query comes, and saved with it; a second save replaces the first."""
    write_encoder(tmp_path / "bert")
    texts = [f"{'war' if i % 2 else 'peace'} {i}" for i in range(40)]
    costs = np.stack([np.arange(40) % 2, 1 - np.arange(40) % 2], axis=1)
    options = {"router.model": str(tmp_path / "bert"), "router.reads.max_length": 32}
    router = fit(texts, costs, options=quick(1, {"router": "minilm_tuned", **options}))
    shutil.rmtree(tmp_path / "bert")
    for _ in range(2):
        router.save(tmp_path / "router")
    loaded = l2d.Router.load(tmp_path / "router")
    assert [choice.posterior for choice in loaded.route(texts)] == [choice.posterior for choice in router.route(texts)]
    place = Path(str(router.network.model))
    assert place.exists()
    del router
    gc.collect()
    assert not place.exists()


def test_images() -> None:
    images = np.random.default_rng(0).integers(0, 100, size=(60, 8, 8)).astype(np.uint8)
    costs = np.stack([np.arange(60) % 2, 1 - np.arange(60) % 2], axis=1)
    router = fit(images, costs, options=quick(1, {"router.width": 2}))
    assert router.description.kind == "image"
    assert router.score(images, costs).n == 60
    assert torch.equal(router.decide(images), router.decide(images[..., None]))


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({"costs": None}, "^costs: "),
    "both": ({"errors": np.zeros((N, 3))}, "^costs: .*errors"),
    "rows": ({"costs": np.zeros((N - 1, 3))}, "^costs, errors: 239 .*240"),
    "one expert": ({"costs": np.zeros((N, 1))}, "1 expert"),
    "one is missing": (
        {"costs": pd.DataFrame({"small": [0.0] * N, "large": [0.0] * 7 + [np.inf] * 2 + [0.0] * (N - 9)})},
        r"^costs: .*\[7, 1\].*inf",
    ),
    "price by a wrong name": (
        {"costs": None, "errors": np.zeros((N, 2)), "prices": {"a": 1, "expert 2": 0}},
        "^prices=a: .*expert 1, expert 2",
    ),
    "names": ({"experts": ["a", "a", "b"]}, "^experts"),
    "method": ({"method": "mildd"}, "^method=mildd: .*mild"),
    "option": ({"options": {"recipe.epohcs": 3}}, r"^recipe\.epohcs: .*epochs"),
    "choice of a command": ({"options": {"experts": "trained"}}, "^experts=trained: .*l2d train"),
    "labels": ({"labels": [1, 2]}, "^labels: .*240"),
    "text": ({"options": {"dataset.text": "prompt"}}, "^text=prompt: "),
    "one text": ({"X": "text"}, "^X: .*list"),
    "two rows": ({"X": [[1, 2]] * 2, "costs": [[0, 1]] * 2}, "^costs, errors: 2 "),
    "unequal rows": ({"X": [[1, 2], [3], [4]], "costs": [[0, 1]] * 3}, "^X: "),
    "unequal costs": ({"X": [[1]] * 3, "costs": [[0, 1], [1], [0]]}, "^costs: "),
    "unequal prices": ({"costs": None, "errors": np.zeros((N, 2)), "prices": [[1], [1, 2]]}, "^prices: "),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_name_the_argument(case: str, rows: Rows) -> None:
    changed, said = BAD[case]
    given = {"X": rows[0], "costs": rows[1], **changed}
    with pytest.raises(L2DError, match=said) as caught:
        fit(given.pop("X"), **given)
    assert "\n" not in str(caught.value)


def test_what_a_dataset_of_given_rows_is() -> None:
    with pytest.raises(L2DError, match=r"l2d\.fit"):  # rows that were given cannot be loaded again
        make_dataset(make_experiment("rows", "mild", {"name": "error"}, {})).load(Path())
    for wanted in (True, False):
        options = {"progress": wanted, "router": "minilm"}
        encoder = make_dataset(make_experiment("texts", "mild", {"name": "error"}, options)).encoder
        assert encoder is not None
        assert encoder.progress == wanted


def test_every_option_reaches_the_training(rows: Rows) -> None:
    """Options win over the defaults of the kind of input; numbers of NumPy, tuples and paths are numbers, lists and words."""

    def made(kind: str = "rows", **options: Any) -> Experiment:
        return make_experiment(kind, "mild", {"name": "error"}, {k.replace("__", "."): v for k, v in options.items()})

    numbers: Any = {"recipe__epochs": np.int64(7), "recipe__batch_size": 11, "recipe__optimizer__lr": np.float64(0.25)}
    others: Any = {"trainer__accelerator": "cpu", "progress": False, "method__rho__values": (1, np.float32(2), 3)}
    found = made(validation_fraction=0.3, seed=5, data_dir=Path("there"), **numbers, **others)
    recipe, settings = found.recipe, found.settings
    assert (found.method.name, found.trainer.accelerator, settings.progress) == ("mild", "cpu", False)
    assert [recipe.epochs, recipe.batch_size, recipe.optimizer.arguments["lr"]] == [7, 11, 0.25]
    assert (settings.validation_fraction, settings.seed, settings.data_dir) == (0.3, 5, "there")
    assert found.plain["method"]["rho"]["values"] == [1, 2, 3]
    small, large = made("images"), made("images", router="resnet18")
    assert (small.router.arguments["width"], large.router.arguments["width"]) == (16, 64)
    assert small.recipe == check(compose(["recipe=small"])).recipe != large.recipe
    router = fit(*rows, options=quick(1, {"method.rho.values": [1, 2, 3], "decision": "posterior", "fold": None}))
    assert [float(rho) for rho in router.method.get_buffer("rho")] == [1, 2, 3]
    assert router.config["decision"] == "posterior"


@pytest.mark.parametrize("method", ["mild", "mild_sum", "class_balanced", "plugin"])
def test_the_defaults_are_those_of_the_command(method: str) -> None:
    """The second and the third build on other methods. The dataset is another one."""
    cost = {"name": "error_plus_cost", "prices": [0.5, 0.25]}
    found = make_experiment("rows", method, cost, {"recipe.schedule": "one_cycle"}).plain
    given = [f"method={method}", "cost=error_plus_cost", "cost.prices=[0.5,0.25]", "recipe.schedule=one_cycle"]
    command = check(compose(["dataset=table", "evaluation=holdout", *given])).plain
    assert {**found, "dataset": None} == {**command, "dataset": None}


# Outcomes that are known in part


def test_costs_of_a_log() -> None:
    """NaN is "not asked". The router is found all the same, and judged by doubly robust estimates."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    costs = np.stack([X[:, 0] > 0, X[:, 0] <= 0], axis=1).astype(float)
    asked = np.eye(2, dtype=bool)[(rng.random(600) < 0.3).astype(int)]
    log = np.where(asked, costs, np.nan)
    options = quick(more={"validation_fraction": 0.3})
    for propensities in (None, [0.7, 0.3]):
        router = fit(X, log, method="knn", propensities=propensities, options=options)
        assert [choice.expert for choice in router.route([[-1, 0], [1, 0]])] == ["expert 1", "expert 2"]
        assert router.validation is not None
        assert (router.validation.oracle_loss, router.validation.oracle_shares) == (None, None)
        assert router.validation.deferral_loss < 0.2
        assert "oracle" not in str(router.validation)
        router.plot()


def test_chances_that_are_none_and_prices_that_are_missing() -> None:
    log = np.where(np.arange(2 * N).reshape(N, 2) % 3 == 0, np.nan, 1.0)
    for propensities in ([0.0, 0.5], [0.5, 1.5]):
        with pytest.raises(ParameterError, match=r"^propensities: "):
            fit(np.zeros((N, 2)), log, propensities=propensities)
    with pytest.raises(ParameterError, match=r"^prices: .*known"):
        fit(np.zeros((N, 2)), errors=log, prices=np.full((N, 2), np.nan))


def test_rows_without_any_outcome_are_left_out(rows: Rows, capsys: Any) -> None:
    """As `l2d train` does: the router is that of the other rows, and a line says how many there were."""
    X, costs = rows
    log = costs.copy()
    log[[3, 7]] = np.nan
    with_gaps = fit(X, log, method="linear", options=quick())
    assert "2 rows" in capsys.readouterr().err
    kept = ~np.isnan(log).all(axis=1)
    without = fit(X[kept], log[kept], method="linear", options=quick())
    assert capsys.readouterr().err == ""
    for name, value in without.network.state_dict().items():
        assert torch.equal(value, with_gaps.network.state_dict()[name]), name
    with pytest.raises(ParameterError, match=r"^costs, errors: .* 0 of them"):
        fit(X, np.full_like(log, np.nan))


def test_answers_go_with_their_rows(rows: Rows) -> None:
    """To the training and validation rows, without the rows that have no outcome; by the rule that the options name."""
    X, errors = rows[0], rows[1].copy()
    errors[:5] = np.nan
    numbers = np.stack([np.arange(N), np.arange(N) + 0.3 * (np.arange(N) % 2), np.arange(N)], axis=1)
    answers = {"answers": numbers, "confidence": numbers}
    outcomes = Outcomes(("a", "b", "c"), torch.from_numpy(errors), None, None, whole=False)
    experiment = make_experiment("rows", "mild", outcomes.cost, quick(more={"dataset.agree": "within:0.001"}))
    said = read_said(answers, (N, 3), outcomes.names)
    splits = assemble_given(experiment, X, outcomes, None, said)
    assert len(splits.train) + len(splits.validation) == N - 5
    for part in (splits.train, splits.validation):
        found = part.answers.replies
        assert found is not None
        row = found.signals[:, 0, 1].long()
        np.testing.assert_allclose(part.inputs, X[row].astype(np.float32))
        near = (row % 2 == 0) | (0.001 * (row + 0.3) >= 0.3)
        assert found.kinds[:, 1].tolist() == (~near).long().tolist()


def test_answers_are_checked(rows: Rows) -> None:
    answers = np.full((N, 3), "x")
    fitted = fit(*rows, answers=answers, options=quick(1))
    assert fitted.route(rows[0][:9].tolist()) == fit(*rows, options=quick(1)).route(rows[0][:9].tolist())
    with pytest.raises(ParameterError, match=r"^answers: "):
        fit(*rows, answers=answers[:, :2], **QUICK)
    with pytest.raises(L2DError, match=r"^dataset\.agree=exat: "):
        fit(*rows, answers=answers, options=quick(1, {"dataset.agree": "exat"}))


def test_experts_and_prices_go_by_their_names(rows: Rows) -> None:
    """Whatever the order of columns: in the errors, in the prices, and in `experts`."""
    X, errors = rows
    frame = pd.DataFrame(errors, columns=["a", "b", "c"])
    prices = pd.Series([0.0, 0.1, 0.2], index=list("abc"))
    by_row = pd.DataFrame([prices] * len(X))[list("cba")]
    first, *others = (
        l2d.fit(X, errors=given, prices=paid, experts=names, method="linear", options={"progress": False})
        for given, paid, names in (
            (frame, [0.0, 0.1, 0.2], None),
            (frame, prices[list("cab")], None),
            (frame[list("bca")], prices, list("abc")),
        )
    )
    for other in others:
        assert (other.experts, other.prices.listed) == (
            ("a", "b", "c"),
            first.prices.listed,
        ) or other.experts != first.experts
        assert other.score(X, errors=frame, prices=by_row) == first.score(X, errors=frame, prices=by_row)
    assert first.at(prices[list("cba")] * 2).prices.listed == first.at([0.0, 0.2, 0.4]).prices.listed


def test_a_raw_router_stays_raw(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    router = fit(rng.normal(size=(N, 3)), rng.random((N, 3)), options=quick(5)).at(raw=True)
    router.save(tmp_path / "raw")
    assert l2d.Router.load(tmp_path / "raw").raw
