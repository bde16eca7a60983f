"""The rows of one category."""

import torch
from torch import Tensor

from l2d.core.groups import smoothed_means
from l2d.networks.estimators.estimator import Estimator, FitRows, scale_of
from l2d.utils.errors import ParameterError

ROUNDED = 3  # decimals of a standard deviation to which rows of one category agree


def refuse_different(different: int, rows: int) -> None:
    if 2 * different > rows:
        problem = f"{different:,} of {rows:,} training rows are different; let the router see only the category"
        raise ParameterError("", f"{problem}: dataset.text=topic dataset.category=topic")


class Lookup(Estimator):
    """The mean over the training rows that are equal to the row; over all rows if there are none. Rows are equal if they differ by
    rounding alone: an encoder gives a text other last digits in another batch."""

    mean: Tensor
    std: Tensor
    different: Tensor
    table: Tensor
    overall: Tensor

    def fit(self, rows: FitRows) -> None:
        right, values = rows.right.float(), rows.inputs.double()
        self.mean, self.std = scale_of(values)
        self.different, member = self.scaled(values).round(decimals=ROUNDED).unique(dim=0, return_inverse=True)
        refuse_different(len(self.different), len(rows))
        self.overall = right.nanmean(dim=0)
        self.table = smoothed_means(member, right, len(self.different), self.overall)

    def scaled(self, values: Tensor) -> Tensor:
        """Centred and in double precision: of numbers such as 5,001 and 5,002 the difference must be left."""
        return (values.double() - self.mean) / self.std

    def add_expert(self, inputs: Tensor, right: Tensor) -> None:
        """Rows of new categories count towards the mean over all rows alone."""
        near, known = self.category(inputs)
        self.overall = torch.cat([self.overall, right.float().mean()[None]])
        mine = right.float().where(known[:, 0], torch.nan)[:, None]
        self.table = torch.cat([self.table, smoothed_means(near, mine, len(self.different), self.overall[-1])], dim=1)

    def category(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest of the different rows [B], and whether it is equal [B, 1]."""
        values = self.scaled(inputs)
        near = (2 * values @ self.different.T - self.different.square().sum(dim=1)).argmax(dim=1)
        return near, ((self.different[near] - values).abs() < 10.0 ** (1 - ROUNDED)).all(dim=1, keepdim=True)

    def forward(self, inputs: Tensor) -> Tensor:
        near, known = self.category(inputs)
        return torch.where(known, self.table[near], self.overall)
