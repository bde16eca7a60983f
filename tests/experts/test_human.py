"""People stand beside a machine's experts, with the labels that they gave to the images."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from tests.experts.published_files import HUNDRED, LABELS, PEOPLE, TEN, TEST, TRAIN, VOTES, arrays, carved, load, ten
from tests.running import assembled

from l2d.assembly.assemble import Splits
from l2d.config import check, compose
from l2d.config.identity import expert_identity
from l2d.data.arrays import Arrays
from l2d.data.sets.prepared import write_prepared
from l2d.experts.cache import Cache
from l2d.experts.human import HumanExperts, machine_cache
from l2d.experts.request import ComputeOptions, ExpertRequest
from l2d.experts.synthetic import SyntheticExperts
from l2d.utils.errors import L2DError, ParameterError

Dataset = Literal["cifar10", "cifar100n"]


def ask(
    data_dir: Path, images: Arrays | None = None, *, dataset: Dataset = "cifar10", people: int = 1, **changes: Any
) -> Any:
    images = arrays() if images is None else images
    train = torch.arange(len(images.train_labels))
    request = ExpertRequest(images, train, [0.6, 0.4], 0, Cache(data_dir), data_dir, ComputeOptions())
    experts = HumanExperts(dataset=dataset, people=people, machine=SyntheticExperts())
    return experts.panel(replace(request, **changes))


def test_training_labels_are_those_of_their_images(data_dir: Path) -> None:
    panel, file = ask(data_dir, people=3), load(data_dir, TEN)
    for row in range(TRAIN):
        said = [int(file[name][row]) for name in PEOPLE]
        assert panel.train.predictions[row, 2:].tolist() == said
        assert panel.train.errors[row, 2:].tolist() == [float(one != LABELS[0][row]) for one in said]


def test_carved_splits_take_the_labels_of_their_images_with_them(data_dir: Path) -> None:
    panel, file = ask(data_dir, carved(), dataset="cifar100n"), load(data_dir, HUNDRED)
    origin: Any = carved().origin
    for answers, images in zip((panel.train, panel.test), origin, strict=True):
        for row, image in enumerate(images.tolist()):
            assert int(answers.predictions[row, 2]) == file["noisy_label"][image]
            assert float(answers.errors[row, 2]) == float(file["noisy_label"][image] != image % 10)


def test_test_votes_are_of_their_images(data_dir: Path) -> None:
    """All votes of an image for one class: whoever is drawn says that."""
    said = (LABELS[1] + (np.arange(TEST) % 20 == 0)) % 10  # 2 of 40 images called something else
    np.save(data_dir / "human" / VOTES, np.eye(10, dtype=np.int64)[said] * 5)
    panel = ask(data_dir, people=2)
    assert panel.test.predictions[:, 2:].tolist() == [[label, label] for label in said.tolist()]
    assert panel.test.errors[:, 2:].sum(dim=0).tolist() == [2, 2]


def test_votes_go_by_seed_and_training_labels_do_not(data_dir: Path) -> None:
    one, again, other = (ask(data_dir, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(one.test.errors, again.test.errors)
    assert not torch.equal(one.test.errors[:, 2], other.test.errors[:, 2])
    assert torch.equal(one.train.errors[:, 2], other.train.errors[:, 2])


def test_machines_come_first_and_people_know_all_classes(data_dir: Path) -> None:
    panel = ask(data_dir, people=3)
    assert panel.names == ("machine 1", "machine 2", "person 1", "person 2", "person 3")
    assert panel.coverage == (0.6, 0.4, 1.0, 1.0, 1.0)
    assert panel.knows.tolist() == [[True] * 6 + [False] * 4, [False] * 6 + [True] * 4, *[[True] * 10] * 3]
    alone = SyntheticExperts().panel(
        ExpertRequest(arrays(), torch.arange(TRAIN), [0.6, 0.4], 0, Cache(data_dir), data_dir, ComputeOptions())
    )
    assert torch.equal(panel.train.errors[:, :2], alone.train.errors)
    assert torch.equal(panel.test.errors[:, :2], alone.test.errors)
    assert ask(data_dir, coverage=[1.0]).names == ("machine", "person 1")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"people": 4}, r"^people=4: .* 3 with dataset=cifar10$"),
        ({"dataset": "cifar100n", "people": 2}, r"^people=2: .* 1 with dataset=cifar100n$"),
        ({"machine": HumanExperts(dataset="cifar10", people=1, machine=SyntheticExperts())},
         r"^machine: .* experts@experts\.machine="),
    ],
)  # fmt: skip
def test_bad_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        HumanExperts(**{"dataset": "cifar10", "people": 1, "machine": SyntheticExperts(), **arguments})


def test_cifar100n_needs_its_own_images(data_dir: Path) -> None:
    torch.save({**ten(), "noisy_label": LABELS[0]}, data_dir / "human" / HUNDRED)
    with pytest.raises(L2DError, match=r"^experts=human: .* dataset=cifar100n"):
        ask(data_dir, dataset="cifar100n")


def test_seed_and_learning_are_the_machines(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what a machine with a seed of its own has learned from never becomes validation."""
    for seed in (None, 7):
        assert HumanExperts(dataset="cifar10", people=1, machine=SyntheticExperts(seed=seed)).seed == seed
    assert not ask(data_dir).learned
    real = SyntheticExperts.panel
    monkeypatch.setattr(SyntheticExperts, "panel", lambda self, asked: replace(real(self, asked), learned=True))
    assert ask(data_dir).learned


@pytest.mark.slow
@pytest.mark.measured
@pytest.mark.parametrize("machine", ["trained", "synthetic"])
def test_the_machine_is_configured_as_it_would_be_alone(machine: str) -> None:
    """And so shares its entry in the cache."""
    common = ["dataset=cifar10", "router=resnet18_slim", "recipe=paper"]
    human = check(compose([*common, "experts=human", f"experts@experts.machine={machine}"]))
    alone = check(compose([*common, f"experts={machine}"]))
    assert human.experts.name == f"human_{machine}"
    known = [(f"cifar10-III-{one.experts.name}", expert_identity(one.plain)) for one in (human, alone)]
    beside, itself = (Cache(Path("runs"), *pair) for pair in known)
    assert beside.entry != itself.entry
    assert machine_cache(beside) == itself
    assert machine_cache(beside).entry == itself.entry


def write_images(data_dir: Path, dataset: str) -> int:
    """Prepared arrays in which each training image carries its row in its pixels. Returns how many there are."""
    published = 100 if dataset == "cifar100n" else TRAIN
    arrays = {"train_labels": np.arange(published) % 10, "test_labels": LABELS[1]}
    for split in ("train", "test"):
        numbers = np.arange(len(arrays[f"{split}_labels"]), dtype=np.uint8)
        arrays[f"{split}_images"] = np.tile(numbers[:, None, None, None], (8, 8, 3))
    write_prepared(data_dir / dataset.removesuffix("n"), arrays, 10)
    torch.save(ten(clean_label=np.arange(TRAIN) % 10), data_dir / "human" / TEN)
    return published


def build(data_dir: Path, *overrides: str) -> Splits:
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
