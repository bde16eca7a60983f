"""The published labels of people: CIFAR-N's file of annotators and CIFAR-10H's file of votes, read and checked."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.data.arrays import Arrays
from l2d.utils.errors import L2DError, ParameterError

SEE = "docs/human_experts.md says where to get it"
AS_PUBLISHED = "use the file and the dataset as they were published"
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


def read_annotations(file: Path, columns: Sequence[str], arrays: Arrays) -> list[Tensor]:
    """The columns of CIFAR-N's file, int64 [N, people], for each split that was taken from the published training set."""
    whole = (torch.arange(len(arrays.train_labels)),)
    splits = list(zip(arrays.origin or whole, (arrays.train_labels, arrays.test_labels), strict=False))
    size = sum(len(rows) for rows, _ in splits)
    read = read_columns(file, (CLEAN, *columns), size, arrays.num_classes)
    if wrong := sum(int((read[CLEAN][rows] != labels).sum()) for rows, labels in splits):
        differ = f"{wrong:,} of {size:,} entries of {CLEAN} differ from the image's label"
        raise L2DError(f"{file}: not in the order of the images: {differ}; {AS_PUBLISHED}")
    people = torch.stack([read[column] for column in columns], dim=1)
    return [people[rows] for rows, _ in splits]


def read_columns(file: Path, columns: Sequence[str], size: int, num_classes: int) -> dict[str, Tensor]:
    """Columns of labels, int64 [size], from a dict of NumPy arrays that torch.save wrote."""
    packed = _packed(file)
    try:
        with torch.serialization.safe_globals(SAFE):
            content = torch.load(packed, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or foreign pickle may raise anything
        raise L2DError(f"{file}: not opened: damaged, or more than NumPy arrays of integers; {SEE}") from error
    if not isinstance(content, dict) or not {*columns} <= {*content}:
        raise L2DError(f"{file}: must be a dict with {', '.join(columns)}; {SEE}")
    found = {}
    for column in columns:
        array = np.asarray(values := content[column], dtype=None if isinstance(values, np.ndarray | Tensor) else object)
        whole = array.dtype.kind in "iu" and array.shape in ((size,), (size, 1))
        if not whole or array.min() < 0 or array.max() >= num_classes:
            needs = f"must be {size:,} integers in 0..{num_classes - 1}, one per image"
            raise L2DError(f"{file}: {column} {needs}, found {array.dtype} {list(array.shape)}")
        found[column] = torch.from_numpy(array.reshape(-1).astype(np.int64))
    return found


def read_votes(file: Path, people: int, arrays: Arrays) -> np.ndarray:
    """The number of people who chose each class for each test image, int64 [N, classes]."""
    packed = _packed(file)
    try:
        counts: np.ndarray = np.lib.format.read_array(packed, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise L2DError(f"{file}: not a readable array of numbers; {SEE}") from error
    expected = (len(arrays.test_labels), arrays.num_classes)
    if counts.dtype.kind not in "iu" or counts.shape != expected or counts.min() < 0:
        found = f"{counts.dtype} {list(counts.shape)}"
        raise L2DError(f"{file}: expected whole numbers of votes {list(expected)}, not negative, found {found}")
    if (fewest := int(counts.sum(axis=1).min())) < people:
        raise ParameterError("people", f"an image of {file} has only {fewest} votes", people)
    agreement = float((counts.argmax(axis=1) == arrays.test_labels.numpy()).mean())
    if agreement < LEAST_AGREEMENT:
        share = f"the majority vote is the label for only {agreement:.0%} of them (99% as published)"
        raise L2DError(f"{file}: not in the order of the test images: {share}; {AS_PUBLISHED}")
    return counts.astype(np.int64)


def draw_votes(counts: np.ndarray, people: int, rng: np.random.Generator) -> Tensor:
    """For each image, one vote per person, drawn without replacement. int [N, classes] -> int64 [N, people]."""
    left, drawn = counts.copy(), []
    for _ in range(people):
        ends = left.cumsum(axis=1)
        vote = (rng.integers(0, ends[:, -1])[:, None] >= ends).sum(axis=1)
        left[np.arange(len(left)), vote] -= 1
        drawn.append(vote)
    return torch.from_numpy(np.stack(drawn, axis=1))


def _packed(file: Path) -> io.BytesIO:
    if not file.is_file():
        raise L2DError(f"{file}: missing; experts=human needs it; download it yourself: {SEE}")
    return io.BytesIO(file.read_bytes())
