"""From the objects in a notebook to the arrays that a run learns from."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.core.prices import prices_in_order
from l2d.data.agreement import Agreement, Said, as_text
from l2d.data.arrays import NO_OUTCOME, Answers, Arrays, Panel, Seen, same_name, with_kept_propensities
from l2d.data.dataset import DatasetBase
from l2d.data.inputs import Embed, array_inputs, text_inputs
from l2d.data.splits import groups_of_equal_texts
from l2d.data.text.encoders import Encoder
from l2d.utils.errors import L2DError, ParameterError, unknown
from l2d.utils.parameters import Name
from l2d.utils.text import counted

Matrix = Any  # a NumPy array, a tensor, a DataFrame or nested lists


class GivenRows(DatasetBase):
    """The dataset of l2d.fit. text: the column of a DataFrame that holds a text. agree: when answers agree."""

    def __init__(self, *, text: Name | None, encoder: Encoder | None, agree: str = "exact") -> None:
        self.text, self.encoder, self.agreement = text, encoder, Agreement(agree)

    def fingerprint(self, data_dir: Path) -> str:  # noqa: ARG002
        return ""

    def load(self, data_dir: Path) -> Arrays:  # noqa: ARG002
        raise L2DError("dataset=arrays: these rows were given to l2d.fit; there is no file to load them from")


def as_array(values: Any, name: str) -> np.ndarray:
    if isinstance(values, Tensor):
        return values.detach().cpu().numpy()
    try:
        return np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    except ValueError:
        raise ParameterError(name, "has rows of different lengths") from None


def is_frame(values: Any) -> bool:
    """True if it is a DataFrame. pandas is not a dependency."""
    return hasattr(values, "columns") and hasattr(values, "to_numpy")


def kind_of(X: Any, text: str | None) -> str:
    if isinstance(X, str | bytes | dict):
        raise ParameterError("X", "must be a list of inputs, even for a single one")
    if is_frame(X):
        return "rows" if text is None else "texts"
    if text is not None or (not isinstance(X, Tensor) and isinstance(next(iter(X), None), str)):
        return "texts"
    return "images" if as_array(X, "X").ndim in (3, 4) else "rows"


def read_inputs(X: Any, text: str | None, embed: Embed | None) -> tuple[Tensor, Seen, Tensor | None]:
    if is_frame(X):
        return frame_inputs(X, text, embed)
    if text is not None:
        raise ParameterError("text", "names a column of a DataFrame, but X is not one", text)
    if kind_of(X, text) == "texts":
        return text_inputs(list(X), reader(embed)), Seen(text="text"), groups_of_equal_texts(list(X))
    array = as_array(X, "X")
    images = array[..., None] if array.ndim == 3 else array
    if array.ndim == 2 or (images.ndim == 4 and images.dtype == np.uint8 and images.shape[-1] in (1, 3)):
        return array_inputs(images, images.shape[1:], ()), Seen(), None
    kinds = "[n, features], images uint8 [n, height, width, 1 or 3] or a list of texts"
    raise ParameterError("X", f"must be {kinds}, not {array.dtype} {list(array.shape)}")


def frame_inputs(frame: Any, text: str | None, embed: Embed | None) -> tuple[Tensor, Seen, Tensor | None]:
    """Every column but `text` must be numeric."""
    if text is not None and text not in frame.columns:
        raise ParameterError("text", f"no such column; there are {', '.join(map(str, frame.columns))}", text)
    if not frame.columns.is_unique:
        raise ParameterError("X", f"two columns are called {frame.columns[frame.columns.duplicated()][0]}")
    names = [name for name in frame.columns if name != text]
    if odd := [str(name) for name in names if frame[name].dtype.kind not in "biuf"]:
        raise ParameterError("X", f"column {odd[0]} is not numeric; leave it out, or use text={odd[0]!r}")
    seen, values = Seen(tuple(map(str, names)), text), frame[names].to_numpy(dtype=np.float64)
    inputs = [array_inputs(values, (len(names),), seen.features)] if names else []
    if text is None:
        return torch.cat(inputs, dim=1), seen, None
    texts = list(frame[text])
    return torch.cat([*inputs, text_inputs(texts, reader(embed))], dim=1), seen, groups_of_equal_texts(texts)


def reader(embed: Embed | None) -> Embed:
    if embed is None:
        raise ParameterError("router", "does not read text; use mlp or minilm")
    return embed


def names_of_experts(costs: Any, names: Sequence[str] | None, p: int) -> tuple[str, ...]:
    """As given, or the columns of a DataFrame, or expert 1, expert 2, …"""
    if names is None:
        names = [str(name) for name in costs.columns] if is_frame(costs) else [f"expert {k + 1}" for k in range(p)]
    found, columns = tuple(map(str, names)), [*map(str, costs.columns)] if is_frame(costs) else []
    moved = [name for name, column in zip(found, columns, strict=False) if name != column and name in columns]
    if moved and {*found} != {*columns}:  # a frame with columns of these names is put into their order
        raise ParameterError(
            "experts", f"{moved[0]} is the name of another column of the costs; leave this out", list(names)
        )
    if not len(found) == len({*map(same_name, found)}) == p:
        problem = f"must be {p} different names, one for each column of the costs; capitals and spaces do not count"
        raise ParameterError("experts", problem, list(names))
    return found


def read_amounts(
    name: str, values: Any, shape: tuple[int, ...] | None = None, *, gaps: bool = False, signed: bool = False
) -> Tensor:
    """float64, finite and, unless `signed`, not negative. gaps: NaN is allowed, for what is not known."""
    array = as_array(values, name)
    if array.dtype == object and hasattr(values, "to_numpy"):  # pandas' own types of numbers and gaps
        with suppress(TypeError, ValueError):
            array = values.to_numpy(np.float64, na_value=np.nan)
    wanted = "[n, experts]" if shape is None else f"{list(shape)} or {list(shape[1:])}"
    fits = array.ndim == 2 if shape is None else array.shape in (shape, shape[1:])
    if array.dtype.kind not in "biuf" or not fits:
        raise ParameterError(name, f"must be numbers {wanted}, not {array.dtype} {list(array.shape)}")
    found = array.astype(np.float64)
    for place in np.argwhere(~(np.isfinite(found) & ((found >= 0) | signed) | (np.isnan(found) & gaps))).tolist():
        value = f"the value at {place}, counted from 0, is {found[tuple(place)]}"
        raise ParameterError(name, f"must be finite{'' if signed else ' and not negative'}; {value}")
    return torch.from_numpy(found)


def refuse_other_order(X: Any, **others: Any) -> None:
    """Refuse what has the row labels of X in another order: rows go by place."""
    for name, one in others.items():
        framed = all(hasattr(frame, "index") and hasattr(frame, "to_numpy") for frame in (X, one))
        if framed and not one.index.equals(X.index) and sorted(map(str, one.index)) == sorted(map(str, X.index)):
            raise ParameterError(
                name, "has the rows of X in another order (index), and rows go by place; align them, or reset both"
            )


def in_order(values: Any, names: Sequence[str]) -> Any:
    """A DataFrame with columns of these names is put into that order."""
    own = is_frame(values) and {*map(str, values.columns)} == {*names}
    return values.rename(columns=str)[list(names)] if own else values


def read_outcomes(
    costs: Any, errors: Any, prices: Any, names: Sequence[str] = (), *, gaps: bool = False
) -> tuple[Tensor, Tensor | None]:
    """errors (or costs with prices) [n, p], prices [p] or [n, p]. names: a DataFrame's order. gaps: NaN is "not asked"."""
    if (costs is None) == (errors is None):
        raise ParameterError("costs", "give either costs, or errors and optionally prices")
    if costs is not None and prices is not None:
        raise ParameterError("prices", "are part of the costs; give errors and prices instead")
    name, values = ("costs", costs) if errors is None else ("errors", errors)
    found = read_amounts(name, in_order(values, names), gaps=gaps)
    if not len(found):
        raise ParameterError(name, "has no rows")
    if found.shape[1] < 2:
        raise ParameterError(name, f"{found.shape[1]} expert; routing needs at least 2")
    if prices is None:
        return found, None
    listed = in_order(prices, names) if as_array(prices, "prices").ndim > 1 else prices_in_order(prices, names)
    paid = read_amounts("prices", listed, tuple(found.shape), gaps=gaps)
    if (paid.isnan() & (~found.isnan() if paid.ndim == 2 else torch.tensor(True))).any():
        raise ParameterError("prices", "must be known wherever an expert was asked")
    return found, paid


def read_propensities(values: Any, errors: Tensor) -> Tensor | None:
    """[n, p] or [p]; above 0 and at most 1 wherever an expert was asked."""
    if values is None:
        return None
    found = read_amounts("propensities", values, tuple(errors.shape), gaps=True).expand_as(errors)
    asked = found[~errors.isnan()]
    if not ((asked > 0) & (asked <= 1)).all():
        raise ParameterError("propensities", "must be above 0 and at most 1 wherever an expert was asked")
    return found


def read_said(values: Any, shape: tuple[int, ...], names: Sequence[str]) -> Said | None:
    """Answers [n, p], or a mapping that may have confidence and length too. names: of the experts."""
    if values is None:
        return None
    parts = {"answers": values} if is_frame(values) or not isinstance(values, Mapping) else values
    known = ("answers", "confidence", "length")
    if wrong := [str(key) for key in parts if key not in known]:
        raise ParameterError("answers", unknown("key", wrong[0], known), wrong[0])
    answers, confidence, length = (in_order(parts.get(key), names) for key in known)
    if answers is not None:
        cells = np.array(answers if isinstance(answers, list | tuple) else as_array(answers, "answers"), dtype=object)
        if cells.shape != shape:
            raise ParameterError("answers", f"must be {list(shape)}, like the outcomes, not {list(cells.shape)}")
        answers = np.vectorize(as_text, otypes=[object])(cells)
        if absent := Said.experts_without(answers):
            raise ParameterError("answers", f"{names[absent[0]]} has none; leave this expert out, or give its answers")
    found, nothing = [], np.full(shape, np.nan)
    for key, part in (("confidence", confidence), ("length", length)):
        numbers = read_amounts(key, nothing if part is None else part, shape, gaps=True, signed=key == "confidence")
        found.append(numbers.expand(shape).numpy())
    return Said(answers, *found)


def read_labels(labels: Any, n: int) -> tuple[Tensor, int]:
    """int64 [n] and how many classes there are; −1 and 0 without labels."""
    if labels is None:
        return torch.full((n,), -1), 0
    given = as_array(labels, "labels")
    if any(one is None or one != one for one in given.ravel().tolist()):
        raise ParameterError("labels", "some are empty; leave out these rows, or all labels")
    try:
        classes, numbers = np.unique(given, return_inverse=True)
    except TypeError as error:
        raise ParameterError("labels", "some are text and some are numbers") from error
    if numbers.shape != (n,):
        raise ParameterError("labels", f"must be {n} values, one for each input, not {list(given.shape)}")
    return torch.from_numpy(numbers.astype(np.int64)), len(classes)


def make_arrays(
    inputs: Tensor, seen: Seen, groups: Tensor | None, names: tuple[str, ...], answers: Answers, labels: Any
) -> Arrays:
    """All rows with an outcome are training rows, and a line counts the others; there are no test rows."""
    n, asked = len(inputs), ~answers.errors.isnan().all(dim=1)
    if len(asked) != n or not asked.any():
        problem = f"{len(asked):,} rows, {int(asked.sum()):,} of them with an outcome; X has {n:,}"
        raise ParameterError("costs, errors", problem)
    classes, num_classes = read_labels(labels, n)
    if not asked.all():
        inputs, groups = inputs[asked], None if groups is None else groups[asked]
        kept = None if labels is None else as_array(labels, "labels")[asked.numpy()]
        classes, num_classes = read_labels(kept, len(inputs))
        answers, problem = with_kept_propensities(answers[asked], others=False, each_asked=False)
        left_out = f"left out {counted(n - len(inputs), 'row')} without {NO_OUTCOME}"
        print(left_out, *[problem] * bool(problem), sep="\n", file=sys.stderr)
    panel = Panel(names, answers, answers[torch.arange(0)])
    return Arrays(inputs, classes, inputs[:0], classes[:0], num_classes, panel=panel, groups=groups, seen=seen)
