"""Classifiers as experts: what they learn from, what they never see, and that they are made once."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import DictConfig
from tests.running import assembled
from torch import Tensor

from l2d.config import compose
from l2d.data.arrays import Arrays, content_of
from l2d.data.sets.digits import Digits
from l2d.data.splits import split
from l2d.experts import trained
from l2d.experts.cache import Cache
from l2d.experts.classifier import Classifiers
from l2d.experts.partition import class_owners
from l2d.experts.request import Machine, Request
from l2d.experts.trained import TrainedExperts, expert_rows, folds
from l2d.routing.build import expert_cache
from l2d.routing.make import make
from l2d.utils.errors import L2DError
from l2d.utils.seeding import stream

TINY = ["setup=severe", "experts=trained", "experts.network.width=2", "experts.recipe.epochs=2", "progress=false"]
BATCH = "experts.recipe.batch_size=256"


@given(st.integers(0, 999), st.sampled_from([0.0, 0.01, 0.1, 1.0]), st.integers(0, 2))
def test_its_classes_and_a_fraction_of_the_others(seed: int, fraction: float, k: int) -> None:
    rng = np.random.default_rng(seed)
    labels = torch.from_numpy(rng.integers(0, 10, 700))
    train = torch.from_numpy(np.sort(rng.permutation(700)[:600]))
    owned = class_owners([0.7, 0.2, 0.1], 10) == k
    rows = expert_rows(labels, train, owned, fraction, stream(seed))
    assert rows.tolist() == sorted({*rows.tolist()})
    assert {*rows.tolist()} <= {*train.tolist()}
    for label in range(10):
        there = [row for row in train.tolist() if int(labels[row]) == label]
        chosen = [row for row in rows.tolist() if int(labels[row]) == label]
        assert len(chosen) == (len(there) if owned[label] else round(fraction * len(there)))


def test_one_per_cent_is_one_per_cent_and_seeded() -> None:
    """4,500 rows a class: 45 of each of the 3 classes that expert 1 of setup I does not know."""
    labels = torch.arange(10).repeat(4500)
    owned = class_owners([0.7, 0.2, 0.1], 10) == 0
    draw = [expert_rows(labels, torch.arange(45_000), owned, 0.01, stream(seed)) for seed in (0, 0, 1)]
    assert torch.bincount(labels[draw[0]]).tolist() == [4500] * 7 + [45] * 3
    assert torch.equal(draw[0], draw[1])
    assert not torch.equal(draw[0], draw[2])


@given(st.integers(2, 7), st.integers(0, 99))
def test_folds_are_a_partition(number: int, seed: int) -> None:
    train = torch.arange(3, 90)
    parts = folds(train, number, stream(seed))
    assert torch.cat(parts).sort().values.tolist() == train.tolist()
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def experts(*overrides: str) -> TrainedExperts:
    made: TrainedExperts = make(compose([*TINY, BATCH, *overrides]).experts)
    return made


def request(folder: Path, arrays: Arrays, seed: int = 0, coverage: tuple[float, ...] = (0.9, 0.1)) -> Request:
    train, _ = split(arrays, 0.1, seed)
    return Request(arrays, train, coverage, seed, Cache(folder, "x", {"seed": seed}), Path(), Machine())


@pytest.mark.parametrize("cross_fit", [1, 2, 5])
def test_cross_fit_never_asks_about_a_row_it_trained_on(
    cross_fit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every training row is answered by the one classifier of its expert that did not have its fold; the rest by the full one."""
    asked: list[tuple[Tensor, Tensor, bool]] = []

    class Fake(Classifiers):
        def answers(self, rows: Tensor, about: Tensor, ask_test: bool, *_: Any) -> tuple[Tensor, Tensor]:
            asked.append((rows, about, ask_test))
            number = len(asked)
            return torch.full((len(about),), number), torch.full((360 if ask_test else 0,), number)

    monkeypatch.setattr(trained, "Classifiers", Fake)
    arrays = Digits().load(Path())
    ask = request(tmp_path, arrays)
    panel = experts(f"experts.cross_fit={cross_fit}").panel(ask)
    predictions = panel.train.predictions
    assert predictions is not None
    assert len(asked) == 2 * (1 + (cross_fit if cross_fit > 1 else 0))
    training = {*ask.train.tolist()}
    for number, (rows, about, full) in enumerate(asked, start=1):
        assert {*rows.tolist()} <= training
        k = (number - 1) * 2 // len(asked)
        answered = {*torch.nonzero(predictions[:, k] == number)[:, 0].tolist()}
        if full:
            wanted = {*range(len(predictions))} - (training if cross_fit > 1 else set())
            assert answered == wanted
        else:
            assert answered == {*about.tolist()}
            assert not {*rows.tolist()} & answered
            assert len(rows) > 0.5 * len([row for row in ask.train.tolist() if int(arrays.train_labels[row]) == 9])


@pytest.mark.parametrize("cross_fit", [1, 2])
def test_it_is_said_whether_they_learned_the_rows_they_answer(
    cross_fit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a method takes from their answers then comes from other rows."""

    def made(_: TrainedExperts, request: Request, __: Tensor) -> dict[str, np.ndarray]:
        sizes = {"train": len(request.arrays.train_labels), "test": len(request.arrays.test_labels)}
        return {name: np.zeros((size, 2), dtype=np.uint8) for name, size in sizes.items()}

    monkeypatch.setattr(TrainedExperts, "_make", made)
    given = [*TINY, BATCH, f"experts.cross_fit={cross_fit}", f"runs_dir={tmp_path}", "trainer.accelerator=cpu"]
    data = assembled(compose(given))
    assert data.panel.learned == (cross_fit == 1)
    labels = data.train.labels
    if cross_fit == 1:
        half = data.validation.labels.argsort(stable=True)[::2]
        labels = data.validation.labels[half.sort().values]
    evidence = data.take_evidence()
    assert torch.equal(evidence.errors, (labels != 0).double()[:, None].expand(-1, 2))
    assert torch.equal(evidence.labels, labels)


def test_validation_rows_teach_nothing(tmp_path: Path) -> None:
    """With every validation image and label replaced, the experts say the same about all other rows."""
    arrays = Digits().load(Path())
    ask = request(tmp_path / "one", arrays)
    one = experts().panel(ask)
    held_out = torch.ones(len(arrays.train_labels), dtype=torch.bool).index_fill(0, ask.train, False)
    images, labels = arrays.train_inputs.clone(), arrays.train_labels.clone()
    images[held_out], labels[held_out] = 7, 9
    other_arrays = dataclasses.replace(arrays, train_inputs=images, train_labels=labels)
    other = experts().panel(
        dataclasses.replace(ask, arrays=other_arrays, cache=Cache(tmp_path / "other", "x", {"seed": 0}))
    )
    assert one.train.predictions is not None
    assert other.train.predictions is not None
    assert torch.equal(one.train.predictions[ask.train], other.train.predictions[ask.train])
    assert torch.equal(one.test.errors, other.test.errors)


@pytest.mark.slow
def test_seeded_and_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = Digits().load(Path())
    one = experts().panel(request(tmp_path / "one", arrays))
    again = experts().panel(request(tmp_path / "two", arrays))
    assert torch.equal(one.train.errors, again.train.errors)
    assert not torch.equal(one.train.errors, experts().panel(request(tmp_path / "one", arrays, seed=1)).train.errors)
    monkeypatch.setattr(TrainedExperts, "_make", lambda *_: pytest.fail("made although it is there"))
    read = experts().panel(request(tmp_path / "one", arrays))
    assert torch.equal(one.train.errors, read.train.errors)
    assert torch.equal(one.test.errors, read.test.errors)


@pytest.mark.slow
def test_they_learn_their_own_classes(tmp_path: Path) -> None:
    """Six classes to one, four to the other: on the test split each is right on its own, hardly ever on the other's."""
    able = experts("experts.network.width=4", "experts.recipe.epochs=5", "experts.recipe.batch_size=32")
    arrays = Digits().load(Path())
    panel = able.panel(request(tmp_path, arrays, coverage=(0.6, 0.4)))
    assert panel.knows is not None
    for k in (0, 1):
        own = panel.knows[k][arrays.test_labels]
        right = 1 - panel.test.errors[:, k]
        assert float(right[own].mean()) > 0.6
        assert float(right[~own].mean()) < 0.3


def tiny_data(tiny: Callable[..., DictConfig], *overrides: str) -> Any:
    return assembled(tiny(*TINY, BATCH, *overrides))


@pytest.mark.slow
def test_a_routers_seeds_share_their_experts(tiny: Callable[..., DictConfig], tmp_path: Path) -> None:
    one, other = (tiny_data(tiny, f"seed={seed}") for seed in (0, 1))
    assert torch.equal(one.validation.rows, other.validation.rows)
    assert torch.equal(one.train.costs, other.train.costs)
    assert len(list((tmp_path / "runs" / "experts").glob("*/entry.json"))) == 1
    moved = tiny_data(tiny, "experts.seed=1")
    assert not torch.equal(one.validation.rows, moved.validation.rows)
    assert len(list((tmp_path / "runs" / "experts").glob("*/entry.json"))) == 2


def test_what_makes_another_entry(tiny: Callable[..., DictConfig]) -> None:
    """Everything the predictions follow from, and nothing else."""

    def name(*overrides: str) -> str:
        cfg = tiny(*TINY, BATCH, *overrides)
        cache = expert_cache(cfg)
        return cache.knowing(coverage=list(cfg.setup.coverage)).entry.name

    base = name()
    different = ["setup=I", "experts.seed=1", "experts.fraction=0.02", "experts.cross_fit=2", "experts.network.width=4",
                 "experts.recipe.epochs=3", "experts.recipe.optimizer.lr=0.1"]  # fmt: skip
    assert len({base, *map(name, different)}) == 1 + len(different)
    same = ["seed=1", "method=tdef", "router.width=4", "recipe.epochs=9", "cost=error_plus_cost", "progress=true"]
    assert {name(override) for override in same} == {base}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("experts.fraction=1.5", "experts.fraction"),
        ("experts.cross_fit=0", "experts.cross_fit"),
        ("experts.recipe.epochs=0", "experts.recipe.epochs"),
        ("experts.recipe.schedule=linear", "experts.recipe.schedule"),
        ("+experts.recipe.momentum=1", "momentum"),
        ("+experts.recipe.patience=2", r"^experts\.recipe\.patience: experts have no validation rows"),
        ("experts.recipe.optimizer.lr=fast", "lr"),
        ("experts.recipe.optimizer=adam", r"^experts\.recipe\.optimizer=adam: must be a mapping"),
        ("experts.recipe.epochs=1.5", r"^experts\.recipe\.epochs=1.5: must be of type int"),
        ("experts.recipe.epochs=many", r"^experts\.recipe\.epochs=many: must be of type int"),
        ("experts.cross_fit=1.5", r"^experts\.cross_fit"),
        ("experts.seed=abc", r"^experts\.seed=abc"),
        ("trainer.accelerator=abacus", r"^trainer=.*abacus"),
        ("experts.recipe.optimizer.lr=1e30", r"diverged.*lower experts\.recipe\.optimizer\.lr"),
        ("experts.network.width=3", r"experts\.network: width=3"),
        ("experts.network.width=wide", r"experts\.network"),
        ("setup.coverage=[0.5,0.4]", "setup.coverage"),
    ],
)
def test_bad_values(tiny: Callable[..., DictConfig], override: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(L2DError, match=words):
        tiny_data(tiny, override)
    assert not list(tmp_path.glob("runs/experts/*/entry.json"))


def test_an_expert_that_diverges_in_its_last_step_is_not_kept(tiny: Callable[..., DictConfig], tmp_path: Path) -> None:
    """The losses of an epoch are those before its last step."""
    once = ["experts.recipe.epochs=1", "experts.recipe.batch_size=4096", "experts.recipe.optimizer.lr=1e30"]
    with pytest.raises(L2DError, match=r"scores are not finite; lower experts\.recipe\.optimizer\.lr"):
        assembled(tiny(*TINY, *once))
    assert not list(tmp_path.glob("runs/experts/*/entry.json"))


def test_keys_are_named_where_they_stand() -> None:
    """A trained machine beside people does not know that it is called experts.machine."""
    human = ["dataset=cifar10", "experts=human"]
    for override, words in {
        "experts.machine.fraction=2": r"^experts\.machine\.fraction=2",
        "experts.machine.recipe.epochs=0": r"^experts\.machine\.recipe\.epochs=0",
        "+experts.machine.recipe.foo=1": r"^experts\.machine\.recipe: .*foo",
        "+experts.machine.foo=1": r"^experts\.machine: .*foo",
    }.items():
        with pytest.raises(L2DError, match=words):
            make(compose([*human, override]).experts)


def test_options_of_the_data_make_another_entry() -> None:
    """Other columns of the same table are other inputs and other labels; where the table lies does not matter."""
    table = ["dataset=table", "dataset.path=a.csv", "setup=severe", "experts=trained"]
    base = expert_cache(compose(table)).entry
    for override in ("dataset.features=[x]", "dataset.label=other", "dataset.split=s", "dataset.text=t"):
        assert expert_cache(compose([*table, override])).entry != base
    assert expert_cache(compose([*table, "dataset.path=elsewhere/a.csv"])).entry == base


@pytest.mark.slow
def test_data_without_a_fingerprint_are_told_apart_by_content(tiny: Callable[..., DictConfig]) -> None:
    one = tiny_data(tiny)
    known = one.cache.identity["data"]
    assert len(known) == 16
    arrays = Digits().load(Path())
    assert known == content_of(arrays)
    assert content_of(dataclasses.replace(arrays, test_inputs=arrays.test_inputs + 1)) != known


@pytest.mark.slow
def test_the_command(command: Callable[..., Any], tmp_path: Path) -> None:
    """A table with every expert on every split; a second time nothing is trained; a router finds them."""
    arguments = [*TINY, BATCH]
    first = command(*arguments, name="experts", tiny=False)
    assert first.returncode == 0, first.stderr
    for word in (
        "expert 1",
        "expert 2",
        "train: own",
        "validation: others",
        "test: overall",
        "runs/experts/digits-severe",
    ):
        assert word in first.stdout
    stamp = next(tmp_path.glob("runs/experts/*/entry.json")).stat().st_mtime_ns
    again = command(*arguments[1:], "setup=severe", name="experts", tiny=False)
    assert again.stdout.splitlines()[:6] == first.stdout.splitlines()[:6]
    trained_router = command(*arguments)
    assert trained_router.returncode == 0, trained_router.stderr
    assert next(tmp_path.glob("runs/experts/*/entry.json")).stat().st_mtime_ns == stamp
    assert "made earlier" in again.stdout
    anew = command(*arguments, "force=true", name="experts", tiny=False)
    assert anew.stdout.splitlines()[:6] == first.stdout.splitlines()[:6]
    assert next(tmp_path.glob("runs/experts/*/entry.json")).stat().st_mtime_ns > stamp
    for mistake in ("dry_run=true", "experiment=table2_error"):
        assert command(*arguments, mistake, name="experts", tiny=False).stderr.startswith(f"error: {mistake[:7]}")
    bad = command(*arguments, "experts.fraction=2", name="experts", tiny=False)
    assert bad.returncode == 1
    assert bad.stderr.startswith("error: experts.fraction=2")


@pytest.mark.slow
def test_two_runs_at_once_and_a_kill(start: Callable[..., Any], tmp_path: Path) -> None:
    """Killed in the middle of making experts, they are made anew; of two runs that want the same, one makes them."""
    killed = start(*TINY, BATCH, "experts.recipe.epochs=500", name="experts", tiny=False)
    while not list(tmp_path.glob("runs/experts/*")):
        assert killed.poll() is None
    killed.kill(9)
    killed.wait()
    assert not list(tmp_path.glob("runs/experts/*/entry.json"))
    slower = "experts.recipe.epochs=4"
    both = [start(*TINY, BATCH, slower, f"seed={seed}") for seed in (0, 1)]
    ended = [one.wait() for one in both]
    assert [one.returncode for one in ended] == [0, 0], ended
    assert sum("another process is making these experts" in one.stderr for one in ended) <= 1
    assert len(list(tmp_path.glob("runs/experts/*/entry.json"))) == 1
    assert len(list(tmp_path.glob("runs/digits/severe/trained/error/mild/*/seed=*/metrics.json"))) == 2
