"""People's labels belong to their images, come from the published files alone, and stand beside a machine's experts."""

import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.running import assembled
from torch import Tensor

from l2d.config import compose, to_plain
from l2d.data.arrays import Arrays, Panel
from l2d.experts.cache import Cache
from l2d.experts.human import HumanExperts, draw_votes, machine_cache, read_columns
from l2d.experts.request import Machine, Request
from l2d.experts.synthetic import SyntheticExperts
from l2d.experts.trained import TrainedExperts
from l2d.routing.datamodule import DeferralData
from l2d.utils.errors import L2DError

TRAIN, TEST = 60, 40
TEN, HUNDRED, VOTES = "CIFAR-10_human.pt", "CIFAR-100_human.pt", "cifar10h-counts.npy"
PEOPLE = ("random_label1", "random_label2", "random_label3")
RNG = np.random.default_rng(0)
LABELS = (RNG.integers(0, 10, TRAIN), RNG.integers(0, 10, TEST))


def ten(**changes: Any) -> dict[str, Any]:
    """CIFAR-10N's file, of 60 images; people are wrong about every second time."""
    guesses = {name: np.where(RNG.random(TRAIN) < 0.5, LABELS[0], RNG.integers(0, 10, TRAIN)) for name in PEOPLE}
    others = {"clean_label": LABELS[0], "aggre_label": LABELS[0], "worse_label": guesses[PEOPLE[2]]}
    return {**others, **guesses, **changes}


def hundred() -> dict[str, np.ndarray]:
    """CIFAR-100N's, of 100 images in 10 classes."""
    clean = np.arange(100) % 10
    return {"clean_label": clean, "noisy_label": np.where(RNG.random(100) < 0.6, clean, RNG.integers(0, 10, 100))}


def counts(labels: np.ndarray = LABELS[1]) -> np.ndarray:
    """CIFAR-10H's: 7 of 10 votes for the label, 3 for the next two classes."""
    table = np.zeros((len(labels), 10), np.int64)
    for row, label in enumerate(labels):
        table[row, label], table[row, (label + 1) % 10], table[row, (label + 2) % 10] = 7, 2, 1
    return table


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    (tmp_path / "human").mkdir()
    torch.save(ten(), tmp_path / "human" / TEN)
    torch.save(hundred(), tmp_path / "human" / HUNDRED)
    np.save(tmp_path / "human" / VOTES, counts())
    return tmp_path


def arrays(origin: tuple[Tensor, Tensor] | None = None, num_classes: int = 10) -> Arrays:
    """Images that tell their row by their pixel: the row of the published set where they were taken from one."""
    train, test = origin or (torch.arange(TRAIN), torch.arange(TEST))
    labels = (train % 10, test % 10) if origin else tuple(torch.from_numpy(part) for part in LABELS)
    return Arrays(train, labels[0], test, labels[1], num_classes, origin=origin)


def carved() -> Arrays:
    order = torch.from_numpy(np.random.default_rng(5).permutation(100))
    return arrays((order[:70], order[70:]))  # not even sorted


def ask(
    data_dir: Path,
    images: Arrays | None = None,
    *,
    dataset: str = "cifar10",
    people: int = 1,
    seed: int = 0,
    **changes: Any,
) -> Panel:
    images = arrays() if images is None else images
    train = torch.arange(len(images.train_labels))
    request = Request(images, train, [0.6, 0.4], seed, Cache(data_dir), data_dir, Machine())
    experts = HumanExperts(dataset=dataset, people=people, machine=SyntheticExperts())
    return experts.panel(replace(request, **changes))


def load(data_dir: Path, name: str) -> dict[str, np.ndarray]:
    """As the authors read it."""
    content: dict[str, np.ndarray] = torch.load(data_dir / "human" / name, weights_only=False)
    return content


def test_training_labels_are_those_of_their_images(data_dir: Path) -> None:
    panel, file = ask(data_dir, people=3), load(data_dir, TEN)
    assert panel.train.predictions is not None
    for row in range(TRAIN):
        said = [int(file[name][row]) for name in PEOPLE]
        assert panel.train.predictions[row, 2:].tolist() == said
        assert panel.train.errors[row, 2:].tolist() == [float(one != LABELS[0][row]) for one in said]


def test_carved_splits_take_the_labels_of_their_images_with_them(data_dir: Path) -> None:
    panel, origin, file = ask(data_dir, carved(), dataset="cifar100n"), carved().origin, load(data_dir, HUNDRED)
    assert origin is not None
    for answers, images in zip((panel.train, panel.test), origin, strict=True):
        assert answers.predictions is not None
        for row, image in enumerate(images.tolist()):
            assert int(answers.predictions[row, 2]) == file["noisy_label"][image]
            assert float(answers.errors[row, 2]) == float(file["noisy_label"][image] != image % 10)


def test_test_votes_are_of_their_images(data_dir: Path) -> None:
    """All votes of an image for one class: whoever is drawn says that."""
    said = (LABELS[1] + (np.arange(TEST) % 20 == 0)) % 10  # 2 of 40 images called something else
    np.save(data_dir / "human" / VOTES, np.eye(10, dtype=np.int64)[said] * 5)
    panel = ask(data_dir, people=2)
    assert panel.test.predictions is not None
    assert panel.test.predictions[:, 2:].tolist() == [[label, label] for label in said.tolist()]
    assert panel.test.errors[:, 2:].sum(dim=0).tolist() == [2, 2]


@given(st.integers(0, 999))
def test_no_vote_is_given_twice(seed: int) -> None:
    """As many people as votes: what they say is the votes, all of them."""
    table = np.random.default_rng(seed).multinomial(6, [0.5, 0.3, 0.2, 0.0], size=8)
    drawn = draw_votes(table, 6, np.random.default_rng(seed))
    for row, said in enumerate(drawn.tolist()):
        assert np.bincount(said, minlength=4).tolist() == table[row].tolist()


def test_votes_are_drawn_in_proportion() -> None:
    """Votes (7, 2, 0, 1): each person says class k with k's share, 5 σ on 40,000; two agree in (7·6 + 2·1)/(10·9) of the cases, not in
    (49 + 4 + 1)/100 as they would with replacement."""
    drawn = draw_votes(np.tile([7, 2, 0, 1], (40_000, 1)), 2, np.random.default_rng(0)).numpy()
    for person in range(2):
        shares = np.bincount(drawn[:, person], minlength=4) / 40_000
        np.testing.assert_allclose(shares, [0.7, 0.2, 0, 0.1], atol=5 * (0.25 / 40_000) ** 0.5)
        assert shares[2] == 0
    assert np.mean(drawn[:, 0] == drawn[:, 1]) == pytest.approx(44 / 90, abs=5 * (0.25 / 40_000) ** 0.5)


def test_votes_go_by_seed_and_training_labels_do_not(data_dir: Path) -> None:
    one, again, other = (ask(data_dir, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(one.test.errors, again.test.errors)
    assert not torch.equal(one.test.errors[:, 2], other.test.errors[:, 2])
    assert torch.equal(one.train.errors[:, 2], other.train.errors[:, 2])


def test_machines_come_first_and_people_know_all_classes(data_dir: Path) -> None:
    panel = ask(data_dir, people=3)
    assert panel.names == ("machine 1", "machine 2", "person 1", "person 2", "person 3")
    assert panel.coverage == (0.6, 0.4, 1.0, 1.0, 1.0)
    assert panel.knows is not None
    assert panel.knows.tolist() == [[True] * 6 + [False] * 4, [False] * 6 + [True] * 4, *[[True] * 10] * 3]
    alone = SyntheticExperts().panel(
        Request(arrays(), torch.arange(TRAIN), [0.6, 0.4], 0, Cache(data_dir), data_dir, Machine())
    )
    assert torch.equal(panel.train.errors[:, :2], alone.train.errors)
    assert torch.equal(panel.test.errors[:, :2], alone.test.errors)
    assert ask(data_dir, coverage=[1.0]).names == ("machine", "person 1")


def test_that_they_are_different_people_is_said_where_they_are(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(data_dir)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "CIFAR-10H) are others than those of the training images (CIFAR-10N)" in said
    ask(data_dir, carved(), dataset="cifar100n")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", [TEN, HUNDRED, VOTES])
def test_a_file_in_another_order_is_refused(name: str, data_dir: Path) -> None:
    file, order = data_dir / "human" / name, np.random.default_rng(1).permutation
    if name == VOTES:
        np.save(file, counts()[order(TEST)])
        words = r"cifar10h-counts\.npy: not in the order of the test images, .* on \d+% of them only"
    else:
        content = load(data_dir, name)
        rows = order(len(content["clean_label"]))
        torch.save({key: values[rows] for key, values in content.items()}, file)
        differ = int((content["clean_label"] != content["clean_label"][rows]).sum())
        words = rf"_human\.pt: not in the order of the images, {differ} of {len(rows)} entries of clean_label"
    with pytest.raises(L2DError, match=words):
        ask(data_dir, *((carved(),) if name == HUNDRED else ()), dataset="cifar100n" if name == HUNDRED else "cifar10")


@pytest.mark.parametrize("name", [TEN, VOTES])
def test_a_missing_file_is_named_with_what_to_do(name: str, data_dir: Path) -> None:
    (data_dir / "human" / name).unlink()
    with pytest.raises(L2DError) as caught:
        ask(data_dir)
    assert str(data_dir / "human" / name) in str(caught.value)
    assert "missing; experts=human reads it there: put it there yourself, docs/human_experts.md says where" in str(
        caught.value
    )
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([1, 2], "expected a dict of arrays, found list"),
        ({"clean_label": LABELS[0]}, "has no random_label1;"),
        (ten(random_label1=LABELS[0][:-1]), r"random_label1 must be 60 integers.*found int64 \[59\]"),
        (
            ten(random_label1=np.eye(TRAIN, dtype=np.int64)),
            r"random_label1 must be 60 integers.*found int64 \[60, 60\]",
        ),
        (ten(random_label1=LABELS[0].tolist()), r"random_label1 must be 60 integers.*found object"),
        (ten(random_label1=LABELS[0] + 1), r"random_label1 must lie in 0\.\.9"),
        (ten(random_label1=LABELS[0] - 1), r"random_label1 must lie in 0\.\.9"),
        (ten(random_label1=LABELS[0].astype(np.float64)), "damaged, or holds more than NumPy arrays of integers"),
        (ten(random_label1=LABELS[0].astype(object)), "damaged, or holds more than NumPy arrays of integers"),
        (ten(extra=Path("x")), "damaged, or holds more than NumPy arrays of integers"),
    ],
)
def test_other_contents_are_refused(content: Any, words: str, data_dir: Path) -> None:
    torch.save(content, data_dir / "human" / TEN)
    with pytest.raises(L2DError, match=rf"{TEN}: {words}") as caught:
        ask(data_dir)
    assert "\n" not in str(caught.value)


class Touch:
    """Unpickled, it makes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.file,)


def test_foreign_code_is_refused_and_not_run(data_dir: Path) -> None:
    trap = data_dir / "trap"
    content = ten(random_label1=Touch(trap))
    torch.save(content, data_dir / "human" / TEN)
    with pytest.raises(L2DError, match="was not opened"):
        ask(data_dir)
    (data_dir / "human" / TEN).write_bytes(pickle.dumps(content))
    with pytest.raises(L2DError, match="was not opened"):
        ask(data_dir)
    np.save(data_dir / "human" / VOTES, np.array([Touch(trap)]))
    torch.save(ten(), data_dir / "human" / TEN)
    with pytest.raises(L2DError, match="not a readable array of numbers"):
        ask(data_dir)
    assert not trap.exists()
    load(data_dir, TEN)
    pickle.loads(pickle.dumps(Touch(trap)))
    assert trap.exists()  # it would have


@pytest.mark.parametrize("damage", [b"", b"junk", None])
def test_damaged_files_are_named(damage: bytes | None, data_dir: Path) -> None:
    for name, words in ((VOTES, "not a readable array"), (TEN, "damaged")):
        file = data_dir / "human" / name
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
        with pytest.raises(L2DError, match=rf"{name}: {words}"):
            ask(data_dir)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
@pytest.mark.parametrize("core", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
@pytest.mark.parametrize("zipped", [True, False])
def test_files_of_older_and_newer_numpy_are_read(core: bytes, dtype: type, zipped: bool, tmp_path: Path) -> None:
    """NumPy 2 moved the function that pickled arrays name; torch's files were not always archives."""

    class Renaming:
        """Stands in for the pickle module, for torch.save."""

        @staticmethod
        def dump(content: Any, file: Any, protocol: int) -> None:
            file.write(Renaming.dumps(content, protocol))

        @staticmethod
        def dumps(content: Any, protocol: int) -> bytes:
            text = pickle.dumps(content, protocol)
            return re.sub(rb"cnumpy\._?core\.multiarray\n", b"c" + core + b"\n", text)

        class Pickler(pickle.Pickler):
            def __init__(self, file: Any, protocol: int) -> None:
                self.target = file
                super().__init__(file, protocol)

            def dump(self, content: Any) -> None:
                self.target.write(Renaming.dumps(content, 2))

    values: np.ndarray = np.arange(10, dtype=dtype)
    file = tmp_path / TEN
    torch.save({"a": values, "b": values[:, None]}, file, Renaming, 2, _use_new_zipfile_serialization=zipped)
    assert core in file.read_bytes()
    read = read_columns(file, ("a", "b"), 10, 10)
    assert read["a"].tolist() == read["b"].tolist() == list(range(10))
    assert read["a"].dtype == torch.int64


@pytest.mark.parametrize(
    ("table", "people", "words"),
    [
        (counts()[:-1], 1, r"expected whole numbers of votes \[40, 10\], found int64 \[39, 10\]"),
        (counts()[:, :9], 1, r"expected whole numbers of votes \[40, 10\], found int64 \[40, 9\]"),
        (counts() / 10, 1, r"expected whole numbers of votes \[40, 10\], found float64"),
        (counts() - 1, 1, "votes must not be negative"),
        (np.eye(10, dtype=np.int64)[LABELS[1]], 2, r"an image has 1 votes, too few for experts\.people=2"),
    ],
)
def test_other_votes_are_refused(table: np.ndarray, people: int, words: str, data_dir: Path) -> None:
    np.save(data_dir / "human" / VOTES, table)
    with pytest.raises(L2DError, match=rf"{VOTES}: {words}"):
        ask(data_dir, people=people)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dataset": "cifar100"}, r"^experts=human: nobody labelled .*; use dataset=cifar100n$"),
        ({"dataset": "digits"}, r"^experts=human: .* dataset=digits; use dataset=cifar10 or cifar100n$"),
        ({"people": 0}, r"^experts\.people=0: must be 1 to 3 with dataset=cifar10$"),
        ({"people": 4}, r"^experts\.people=4: must be 1 to 3"),
        ({"dataset": "cifar100n", "people": 2}, r"^experts\.people=2: must be 1 with dataset=cifar100n$"),
        ({"machine": None}, r"^experts\.machine: .* experts@experts\.machine=trained or synthetic$"),
        (
            {"machine": HumanExperts(dataset="cifar10", people=1, machine=SyntheticExperts())},
            r"^experts\.machine: must be a machine's",
        ),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(L2DError, match=words):
        HumanExperts(**{"dataset": "cifar10", "people": 1, "machine": SyntheticExperts(), **arguments})


def test_cifar100n_needs_its_own_images(data_dir: Path) -> None:
    torch.save({**ten(), "noisy_label": LABELS[0]}, data_dir / "human" / HUNDRED)
    with pytest.raises(L2DError, match=r"experts\.dataset=cifar100n: needs the images of dataset=cifar100n"):
        ask(data_dir, dataset="cifar100n")


def test_the_seed_is_the_machines() -> None:
    """So that what a machine with a seed of its own has learned from never becomes validation."""
    for seed in (None, 7):
        assert HumanExperts(dataset="cifar10", people=1, machine=SyntheticExperts(seed)).seed == seed


def test_what_the_machine_learned_it_learned_beside_people(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not ask(data_dir).learned
    real = SyntheticExperts.panel
    monkeypatch.setattr(SyntheticExperts, "panel", lambda self, asked: replace(real(self, asked), learned=True))
    assert ask(data_dir).learned


@pytest.mark.parametrize("router", [[], ["router=resnet18_slim", "recipe=paper"]])
@pytest.mark.parametrize("machine", ["trained", "synthetic"])
def test_the_machine_is_configured_as_it_would_be_alone(machine: str, router: list[str]) -> None:
    """And so shares its entry in the cache."""
    common = ["dataset=cifar10", *router]
    human = to_plain(compose([*common, "experts=human", f"experts@experts.machine={machine}"]).experts)
    alone = to_plain(compose([*common, f"experts={machine}"]).experts)
    assert (human["name"], human["dataset"], human["people"]) == (f"human_{machine}", "cifar10", 1)
    beside, itself = (
        Cache(Path("runs"), f"cifar10-III-{experts['name']}", {"dataset": "cifar10", "experts": experts})
        for experts in (human, alone)
    )
    assert beside.entry != itself.entry
    assert machine_cache(beside) == itself
    assert machine_cache(beside).entry == itself.entry


def write_images(data_dir: Path, dataset: str) -> int:
    """Prepared arrays in which each training image carries its row in its pixels. Returns how many there are."""
    published = 100 if dataset == "cifar100n" else TRAIN
    folder = data_dir / dataset.removesuffix("n")
    folder.mkdir()
    for split, labels in (("train", np.arange(published) % 10), ("test", LABELS[1])):
        images = np.zeros((len(labels), 8, 8, 3), np.uint8)
        images[:] = np.arange(len(labels))[:, None, None, None]
        np.save(folder / f"{split}_images.npy", images)
        np.save(folder / f"{split}_labels.npy", labels)
    torch.save(ten(clean_label=np.arange(TRAIN) % 10), data_dir / "human" / TEN)
    return published


def build(data_dir: Path, *overrides: str) -> DeferralData:
    places = [f"data_dir={data_dir}", f"runs_dir={data_dir / 'runs'}", "trainer.accelerator=cpu", "progress=false"]
    return assembled(compose([*places, "setup.coverage=[0.6,0.4]", "validation_fraction=0.2", *overrides]))


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100n"])
def test_from_config_to_costs(dataset: str, data_dir: Path) -> None:
    """An image tells its row of the published set, so its person's label can be looked up."""
    published = write_images(data_dir, dataset)
    people = ["experts=human", "experts@experts.machine=synthetic", "cost=error_plus_cost"]
    data = build(data_dir, f"dataset={dataset}", *people)
    assert data.panel.names == ("machine 1", "machine 2", "person 1")
    file, column = (HUNDRED, "noisy_label") if dataset == "cifar100n" else (TEN, "random_label1")
    said = load(data_dir, file)[column]
    splits = [data.train, data.validation, *([data.test] if dataset == "cifar100n" else [])]
    for part in splits:
        for image, label, costs in zip(part.inputs, part.labels.tolist(), part.costs.tolist(), strict=True):
            assert costs[2] == 1 + (said[int(image[0, 0, 0])] != label)
    assert sum(map(len, splits)) == published


def test_a_trained_machine_is_made_once_with_and_without_people(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And keeps its validation rows whatever the run's seed."""
    write_images(data_dir, "cifar10")
    tiny = ["dataset=cifar10", "router=resnet18_slim", "recipe=small", "seed=3"]
    alone = build(data_dir, *tiny, *small("experts"), "experts=trained")
    monkeypatch.setattr(TrainedExperts, "_make", None)  # from here on they are read
    beside = build(data_dir, *tiny, *small("experts.machine"), "experts=human", "seed=4")
    assert len([*(data_dir / "runs" / "experts").iterdir()]) == 1
    for split in ("train", "validation", "test"):
        one, other = getattr(alone, split), getattr(beside, split)
        assert torch.equal(one.rows, other.rows)
        assert torch.equal(one.costs, other.costs[:, :2])


def small(key: str) -> list[str]:
    return [f"{key}.network.width=2", f"{key}.recipe.epochs=1"]
