"""Batches of (input, costs, label) straight from tensors that already lie on the device."""

from collections.abc import Iterator

import torch
from torch import Tensor

from l2d.seeding import derive_seed

Batch = tuple[Tensor, Tensor, Tensor]


class Batches:
    """Every row exactly once a pass, in batches whose sizes differ by at most one.

    Equal sizes leave no tail of one or two rows, on which batch normalisation fails or misleads. With a seed the order is a
    permutation that depends on the seed and the epoch alone, so a resumed run sees the same batches as an unbroken one.
    """

    def __init__(self, inputs: Tensor, costs: Tensor, labels: Tensor, batch_size: int, seed: int | None = None) -> None:
        self.tensors = (inputs, costs, labels)
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0

    batch_sampler = None

    @property
    def sampler(self) -> "Batches":
        """Lightning tells the epoch to a loader's `sampler`, and looks for a `batch_sampler` where there is one."""
        return self

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.tensors[0]) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for rows in self._order().tensor_split(len(self)):
            inputs, costs, labels = (tensor[rows] for tensor in self.tensors)
            yield inputs, costs, labels

    def _order(self) -> Tensor:
        n, device = len(self.tensors[0]), self.tensors[0].device
        if self.seed is None:
            return torch.arange(n, device=device)
        generator = torch.Generator(device).manual_seed(derive_seed(self.seed, "order", self.epoch))
        return torch.randperm(n, generator=generator, device=device)
