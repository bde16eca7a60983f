"""What all networks have in common: what they read, what they refuse, and what their parameters may be."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from l2d.networks.network import READERS, Network, input_kind
from l2d.networks.tabular import MLP
from l2d.networks.vision import ResNet18
from l2d.utils.errors import ParameterError

INPUTS = {
    "images": torch.zeros(2, 8, 8, 3, dtype=torch.uint8),
    "rows": torch.zeros(2, 3),
    "tokens": torch.zeros(2, 3, dtype=torch.int32),
}
SHAPE: dict[str, Any] = {"mean": [0.0] * 3, "std": [1.0] * 3, "num_outputs": 2, "head": "linear"}


class Reader(Network):
    """A network of somebody else's, which takes no statistics and keeps nothing."""

    expects = "tokens"

    head = nn.Identity()

    def features(self, inputs: Tensor) -> Tensor:
        return inputs


NETWORKS: dict[str, Network] = {
    "images": ResNet18(width=2, stem="3x3", zero_init=True, **SHAPE).eval(),
    "rows": MLP(width=2, depth=1, dropout=0.0, **SHAPE).eval(),
    "tokens": Reader(),
}


@pytest.mark.parametrize("kind", INPUTS)
def test_each_reads_its_own_kind_and_says_what_reads_the_others(kind: str) -> None:
    assert input_kind(INPUTS[kind]) == kind
    with torch.no_grad():
        assert len(NETWORKS[kind](INPUTS[kind])) == 2
        for other in INPUTS.keys() - {kind}:
            with pytest.raises(ParameterError, match=f"router={READERS[kind]}$") as caught:
                NETWORKS[other](INPUTS[kind])
            assert caught.value.parameter == ""  # the network as a whole


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # CPUs without bf16
@pytest.mark.parametrize("kind", ["images", "rows"])
def test_scores_are_whole_precision(kind: str) -> None:
    """In half precision scores tie, and ties decide for the last expert."""
    try:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            assert NETWORKS[kind](INPUTS[kind]).dtype == torch.float32
    finally:
        torch.backends.mkldnn.set_flags(True)  # where a CPU has no bf16, torch switches mkldnn off for good


def test_the_advice_names_a_router_that_reads_it() -> None:
    from l2d.assembly.make import find
    from l2d.config import check, compose

    for kind, choices in READERS.items():
        experiment = check(compose([f"router={choices.split()[0]}", *choices.split()[1:]]))
        assert find(experiment.router).expects == kind
