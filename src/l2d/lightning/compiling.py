"""Compiled code that is kept from run to run: a network with the same layers reuses it at once, whatever its head and loss."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

Features = Callable[[Any, Tensor], Tensor]  # of a network and inputs
VERSIONS = 1000  # one per kind of network and shape of batch; torch silently stops compiling after eight by default


@cache
def compiled_features(mode: str) -> Features:
    """`Network.features`, compiled. The network is an argument: torch.compile(network) would compile each network anew."""
    from torch.compiler import config as limits

    limits.recompile_limit = limits.accumulated_recompile_limit = VERSIONS
    return torch.compile(features_of, mode=mode, dynamic=False)


def features_of(network: Any, inputs: Tensor) -> Tensor:
    return network.features(inputs)
