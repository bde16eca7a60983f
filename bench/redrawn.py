"""The losses of TDEF and MILD where experts guess anew in each step: `PYTHONPATH=bench l2d train dataset=svhn setup=III
recipe=paper method._target_=redrawn.Redrawn`."""

from typing import Any

import torch
from torch import Tensor

from l2d.experts.partition import class_owners
from l2d.methods.comp_sum import CompSum

SETUP_III = (0.4, 0.2, 0.2, 0.1, 0.1)


class Redrawn(CompSum):
    """Costs are errors of the synthetic experts of setup III: 0 on their own classes, elsewhere 0 by chance."""

    owners: Tensor

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.register_buffer("owners", class_owners(SETUP_III, self.num_classes), persistent=False)

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:
        return super().loss(outputs, self.redrawn(costs, labels) if self.training else costs, labels)

    def redrawn(self, costs: Tensor, labels: Tensor) -> Tensor:
        knows = self.owners[labels][:, None] == torch.arange(costs.shape[1], device=costs.device)
        guesses = torch.randint(self.num_classes, costs.shape, device=costs.device)
        return ((guesses != labels[:, None]) & ~knows).to(costs.dtype)
