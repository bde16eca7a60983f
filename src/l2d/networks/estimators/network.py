"""An estimator in the place of a network that is trained."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from l2d.core.newcomer import Borrowed
from l2d.networks.estimators.estimator import Estimator, FitRows, resize_buffers
from l2d.networks.network import KINDS, Features, Network, input_kind
from l2d.utils.errors import ParameterError

CERTAIN = 1e-4  # chances are clamped this far from 0 and 1 before a logit


def resize_newcomers(network: nn.Module, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    state.setdefault(f"{prefix}newcomers", torch.zeros(0))  # runs of an earlier l2d have none
    resize_buffers(network, state, prefix)


class EstimatorNetwork(Network):
    """An estimator in a network's place: output k is the logit of the chance that expert k is right. Images are read as rows of
    pixels. newcomers: a row per expert that was added later and borrows from the others (core/newcomer.py)."""

    newcomers: Tensor

    def __init__(self, estimator: Estimator) -> None:
        super().__init__()
        self.estimator = estimator
        self.register_buffer("newcomers", torch.zeros(0))
        self.register_load_state_dict_pre_hook(resize_newcomers)  # type: ignore[no-untyped-call]

    def fit(self, rows: FitRows) -> None:
        with torch.no_grad():
            self.estimator.fit(replace(rows, inputs=rows.inputs.flatten(1)))

    def keep(self, folder: Path) -> None:
        self.estimator.keep(folder)

    def check_inputs(self, inputs: Tensor) -> None:
        if input_kind(inputs) == "tokens":
            raise ParameterError("", f"reads {KINDS['rows']}, not {KINDS['tokens']}; use router=minilm")

    def forward(self, inputs: Tensor, compute: Features | None = None) -> Tensor:  # noqa: ARG002 (there is nothing to compile)
        self.check_inputs(inputs)
        chances = self.estimator(inputs.flatten(1))
        rows = [self.newcomers[k] for k in range(len(self.newcomers))]  # torch.export cannot unbind none
        added = [Borrowed.unpacked(row).chances(chances)[0][:, None].to(chances) for row in rows]
        return self.with_prices(torch.logit(torch.cat([chances, *added], dim=1).clamp(CERTAIN, 1 - CERTAIN)), inputs)
