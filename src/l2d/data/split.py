"""One split of a run: rows, the experts' answers on them, and what these cost."""

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from l2d.core.off_policy import Logged
from l2d.data.arrays import Answers


@dataclass(frozen=True)
class Split:
    """One split of n rows. source: inputs, in which `rows` [n] are the split's. answers, costs [n, p], labels [n]: of these rows.
    prices: the price part of the costs, [p] or [n, p]. logged: how a log knows the costs of rows that judge a router.
    without_prices: the costs are errors alone, for methods that add the prices of rows only to decide."""

    source: Tensor
    rows: Tensor
    answers: Answers
    costs: Tensor
    prices: Tensor
    labels: Tensor
    logged: Logged | None = None
    without_prices: bool = False

    @property
    def whole_costs(self) -> Tensor:
        """With prices."""
        return self.costs + self.prices if self.without_prices else self.costs

    @property
    def inputs(self) -> Tensor:
        return self.source[self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, positions: Tensor) -> "Split":
        """The rows at these positions, in this order; positions may repeat, or be a mask."""
        taken: dict[str, Any] = {name: vars(self)[name][positions] for name in ("rows", "answers", "costs", "labels")}
        prices = self.prices if self.prices.ndim == 1 else self.prices[positions]
        return replace(self, **taken, prices=prices, logged=None if self.logged is None else self.logged[positions])
