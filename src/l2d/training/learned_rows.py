"""The expectations of a router on rows that it learned from: a budget compares there the routers of folds with the one deployed."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from l2d.training.fitted import Fitted


@dataclass(frozen=True)
class LearnedRows:
    """rows [m], counted from 0 among all rows; errors [m, p] that the router expects there, and prices [m, p] if rows have their
    own."""

    rows: Tensor
    errors: Tensor
    prices: Tensor | None

    def take(self, rows: Tensor) -> "LearnedRows":
        """In the order of `rows`, all of which it must have."""
        ordered, order = self.rows.sort()
        places = order[torch.searchsorted(ordered, rows)]
        return LearnedRows(rows, self.errors[places], None if self.prices is None else self.prices[places])

    def arrays(self) -> dict[str, Tensor]:
        """For a fold's test.npz."""
        return {f"learned_{name}": value for name, value in vars(self).items() if value is not None}


def learned_rows(fitted: Fitted, numbers: Tensor, among: Tensor) -> LearnedRows | None:
    """Each row once, however often the router learned from it. None if there is none, or the method's prices cannot change.
    numbers: of the rows that are not for testing, among all rows. among: the rows to look at."""
    method, places = fitted.method, fitted.splits.train.rows.unique()
    places = places[torch.isin(numbers[places], among)]
    if not method.takes_prices_later or not len(places):
        return None
    [outputs] = fitted.outputs([fitted.data.in_order(places)])
    errors = method.expected_errors(outputs)
    assert errors is not None  # a method that takes prices later expects errors
    return LearnedRows(numbers[places], errors, method.expected_prices(outputs))


def read_learned(file: Path) -> LearnedRows | None:
    """From a fold's test.npz, if it keeps any."""
    with np.load(file) as found:
        named = {field.name: f"learned_{field.name}" for field in fields(LearnedRows)}
        kept = {name: torch.from_numpy(found[key]) if key in found else None for name, key in named.items()}
    rows, errors = kept["rows"], kept["errors"]
    return None if rows is None or errors is None else LearnedRows(rows, errors, kept["prices"])


def joined(parts: Sequence[LearnedRows]) -> LearnedRows:
    """The rows of all parts, which are different."""
    rows, errors = (torch.cat([vars(part)[name] for part in parts]) for name in ("rows", "errors"))
    prices = [part.prices for part in parts if part.prices is not None]
    return LearnedRows(rows, errors, torch.cat(prices) if prices else None)
