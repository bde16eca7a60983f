"""An estimator in the place of a network that is trained."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from l2d.lightning.compiling import Features
from l2d.networks.estimators.estimator import Estimator, FitRows
from l2d.networks.network import KINDS, Network, input_kind
from l2d.utils.errors import ParameterError

CERTAIN = 1e-4  # chances are clamped this far from 0 and 1 before a logit


class EstimatorNetwork(Network):
    """An estimator in a network's place: output k is the logit of the chance that expert k is right. Images are read as rows of
    pixels."""

    def __init__(self, estimator: Estimator) -> None:
        super().__init__()
        self.estimator = estimator

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
        return self.with_prices(torch.logit(self.estimator(inputs.flatten(1)).clamp(CERTAIN, 1 - CERTAIN)), inputs)
