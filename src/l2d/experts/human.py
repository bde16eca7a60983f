"""People as experts beside a machine's: CIFAR-N's annotators and, on CIFAR-10's test images, CIFAR-10H's votes.

The published files are looked for in <data_dir>/human/; they are not part of this repository (docs/human_experts.md).
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor

from l2d.core.costs import expert_errors
from l2d.data.arrays import Answers, Arrays, Panel
from l2d.experts.cache import Cache
from l2d.experts.request import Experts, Request
from l2d.utils.errors import L2DError
from l2d.utils.seeding import stream

FOLDER = "human"
SEE = "docs/human_experts.md says where it comes from"
CLEAN = "clean_label"
LEAST_AGREEMENT = 0.9  # of the majority vote with the label: 99 % in the published order, about 10 % in any other

# All that a pickled dict of integer arrays needs, under the names of NumPy 1 and 2. Anything else in a file is refused, not run.
_REBUILD: Any = np.empty(0).__reduce__()[0]
SAFE: list[Any] = [
    np.ndarray,
    np.dtype,
    *((_REBUILD, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")),
    *sorted({type(np.dtype(code)) for code in "bBhHiIlLqQ"}, key=lambda kind: kind.__name__),
]


@dataclass(frozen=True)
class Published:
    """labels: CIFAR-N's file. columns: its keys, one per person. votes: CIFAR-10H's file, where the test images have votes."""

    labels: str
    columns: tuple[str, ...]
    votes: str | None


PUBLISHED = {
    "cifar10": Published(
        "CIFAR-10_human.pt", ("random_label1", "random_label2", "random_label3"), "cifar10h-counts.npy"
    ),
    "cifar100n": Published("CIFAR-100_human.pt", ("noisy_label",), None),
}


class HumanExperts:
    """The machine's experts, then people. On cifar10 those of the test split are other people than those of training; on cifar100n
    both splits are taken from the images that CIFAR-100N's annotators saw.

    A person is a column of labels, which many annotators filled in turns. The seed is the machine's: what a machine has learned
    from must not become validation, and people learn nothing.
    """

    seed: int | None

    def __init__(self, *, dataset: str, people: int, machine: Experts) -> None:
        if dataset == "cifar100":
            raise L2DError("experts=human: nobody labelled the test images of dataset=cifar100; use dataset=cifar100n")
        if dataset not in PUBLISHED:
            raise L2DError(
                f"experts=human: there are no people's labels for dataset={dataset}; use dataset=cifar10 or cifar100n"
            )
        most = len(PUBLISHED[dataset].columns)
        if not 1 <= people <= most:
            raise L2DError(
                f"experts.people={people}: must be {f'1 to {most}' if most > 1 else 1} with dataset={dataset}"
            )
        if isinstance(machine, HumanExperts) or not hasattr(machine, "panel"):
            raise L2DError("experts.machine: must be a machine's; use experts@experts.machine=trained or synthetic")
        self.published, self.people, self.machine, self.seed = PUBLISHED[dataset], people, machine, machine.seed

    def panel(self, request: Request) -> Panel:
        arrays = request.arrays
        train, test = self._answers(request)  # before the machine's: a bad file shows at once, not after their training
        machine = self.machine.panel(replace(request, cache=machine_cache(request.cache)))
        p = len(machine.names)
        return Panel(
            (
                *(f"machine {k + 1}" if p > 1 else "machine" for k in range(p)),
                *(f"person {j + 1}" for j in range(self.people)),
            ),
            beside(machine.train, train, arrays.train_labels),
            beside(machine.test, test, arrays.test_labels),
            # a person knows all classes
            None if machine.coverage is None else (*machine.coverage, *[1.0] * self.people),
            None if machine.knows is None else F.pad(machine.knows, (0, 0, 0, self.people), value=True),
            machine.learned,
        )

    def _answers(self, request: Request) -> tuple[Tensor, Tensor]:
        """What the people say on the training and test rows, int64 [N, people] each."""
        arrays, folder = request.arrays, request.data_dir / FOLDER
        splits = annotations(folder / self.published.labels, self.published.columns[: self.people], arrays)
        if self.published.votes is None:
            if len(splits) < 2:
                raise L2DError("experts.dataset=cifar100n: needs the images of dataset=cifar100n")
            return splits[0], splits[1]
        counts = votes(folder / self.published.votes, self.people, arrays)
        _say_that_they_differ()
        return splits[0], draw_votes(counts, self.people, stream(request.seed, "people", "test"))


def beside(machine: Answers, people: Tensor, labels: Tensor) -> Answers:
    """The machine's answers and, to their right, people's (int [N, people])."""
    errors = torch.cat([machine.errors, expert_errors(people, labels)], dim=1)
    return Answers(errors, None if machine.predictions is None else torch.cat([machine.predictions, people], dim=1))


def machine_cache(cache: Cache) -> Cache:
    """The cache as the machine's experts would have it without people beside them: they are made once for both."""
    experts = cache.identity.get("experts")
    if not isinstance(experts, Mapping):
        return cache
    machine = experts["machine"]
    title = cache.title.removesuffix(str(experts["name"])) + str(machine["name"])
    return replace(cache, title=title, identity={**cache.identity, "experts": machine})


def annotations(file: Path, columns: Sequence[str], arrays: Arrays) -> list[Tensor]:
    """The columns of CIFAR-N's file at the rows of each split that was taken from the published training set: int64 [N, people]."""
    whole = (torch.arange(len(arrays.train_labels)),)
    splits = list(zip(arrays.origin or whole, (arrays.train_labels, arrays.test_labels), strict=False))
    size = sum(len(rows) for rows, _ in splits)
    read = read_columns(file, (CLEAN, *columns), size, arrays.num_classes)
    wrong = sum(int((read[CLEAN][rows] != labels).sum()) for rows, labels in splits)
    if wrong:
        raise L2DError(
            f"{file}: not in the order of the images, {wrong:,} of {size:,} entries of {CLEAN} are not the image's label;"
            " use the file and the dataset as they were published"
        )
    people = torch.stack([read[column] for column in columns], dim=1)
    return [people[rows] for rows, _ in splits]


def read_columns(file: Path, columns: Sequence[str], size: int, num_classes: int) -> dict[str, Tensor]:
    """Columns of labels, int64 [size], from a file that torch.save wrote of a dict of NumPy arrays."""
    content = _load(file)
    if not isinstance(content, dict):
        raise L2DError(f"{file}: expected a dict of arrays, found {type(content).__name__}; {SEE}")
    if missing := [column for column in columns if column not in content]:
        raise L2DError(f"{file}: has no {', '.join(missing)}; {SEE}")
    return {column: _labels(file, column, content[column], size, num_classes) for column in columns}


def _load(file: Path) -> Any:
    _check_there(file)
    try:
        with torch.serialization.safe_globals(SAFE):
            return torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise L2DError(f"{file}: cannot be read ({error.strerror})") from error
    except Exception as error:  # what a damaged or foreign pickle raises is anyone's guess
        raise L2DError(
            f"{file}: damaged, or holds more than NumPy arrays of integers and was not opened; {SEE}"
        ) from error


def _labels(file: Path, column: str, values: Any, size: int, num_classes: int) -> Tensor:
    array = np.asarray(values, dtype=None if isinstance(values, np.ndarray | Tensor) else object)
    if array.dtype.kind not in "iu" or array.shape not in ((size,), (size, 1)):
        raise L2DError(
            f"{file}: {column} must be {size:,} integers, one per image of the dataset, found {_shape(array)}"
        )
    if array.min() < 0 or array.max() >= num_classes:
        raise L2DError(f"{file}: {column} must lie in 0..{num_classes - 1}")
    return torch.from_numpy(array.reshape(-1).astype(np.int64))


def _shape(array: np.ndarray) -> str:
    return f"{array.dtype} {list(array.shape)}"


def votes(file: Path, people: int, arrays: Arrays) -> np.ndarray:
    """How many people chose each class for each test image, int64 [N, classes]."""
    _check_there(file)
    try:
        with file.open("rb") as content:
            counts: np.ndarray = np.lib.format.read_array(content, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise L2DError(f"{file}: not a readable array of numbers; {SEE}") from error
    expected = (len(arrays.test_labels), arrays.num_classes)
    if counts.dtype.kind not in "iu" or counts.shape != expected:
        raise L2DError(f"{file}: expected whole numbers of votes {list(expected)}, found {_shape(counts)}")
    if counts.min() < 0:
        raise L2DError(f"{file}: votes must not be negative")
    if (fewest := int(counts.sum(axis=1).min())) < people:
        raise L2DError(f"{file}: an image has {fewest} votes, too few for experts.people={people}")
    agreement = float((counts.argmax(axis=1) == arrays.test_labels.numpy()).mean())
    if agreement < LEAST_AGREEMENT:
        raise L2DError(
            f"{file}: not in the order of the test images, most votes are for the image's label on {agreement:.0%} of them only"
            " (99% as published); use the file and the dataset as they were published"
        )
    return counts.astype(np.int64)


def draw_votes(counts: np.ndarray, people: int, rng: np.random.Generator) -> Tensor:
    """A vote of the image's for each person, the people of one image without replacement. int [N, classes] -> int64 [N, people]."""
    left, drawn = counts.copy(), []
    for _ in range(people):
        ends = left.cumsum(axis=1)
        vote = (rng.integers(0, ends[:, -1])[:, None] >= ends).sum(axis=1)
        left[np.arange(len(left)), vote] -= 1
        drawn.append(vote)
    return torch.from_numpy(np.stack(drawn, axis=1))


def _check_there(file: Path) -> None:
    if not file.is_file():
        raise L2DError(f"{file}: missing; experts=human reads it there: put it there yourself, {SEE}")


@rank_zero_only
def _say_that_they_differ() -> None:
    print(
        "experts=human: the people of the test images (CIFAR-10H) are others than those of the training images (CIFAR-10N), and"
        " make fewer errors: the router is tested with people it did not learn from (docs/human_experts.md)",
        file=sys.stderr,
    )
