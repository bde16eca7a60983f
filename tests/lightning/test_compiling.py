import pytest
import torch
from torch import Tensor, nn

from l2d.lightning.learner import compiled_features, features_of
from l2d.networks.tabular import MLP


def network(width: int = 8, num_outputs: int = 3, head: str = "linear") -> MLP:
    return MLP(width=width, depth=1, dropout=0.0, mean=[0.0] * 4, std=[1.0] * 4, num_outputs=num_outputs, head=head)


@pytest.mark.full
@pytest.mark.measured
def test_networks_with_the_same_layers_share_compiled_code() -> None:
    """Whatever the head. Ten widths are ten versions, more than torch would compile by default; outputs and gradients are right."""
    compiled_features("default")  # which raises the limit
    versions: list[object] = []

    def count(graph: torch.fx.GraphModule, _: list[Tensor]) -> torch.fx.GraphModule:
        versions.append(graph)
        return graph

    compute, rows = torch.compile(features_of, backend=count, dynamic=False), torch.randn(6, 4)
    for number, width in enumerate(range(8, 18), start=1):
        for num_outputs, head in ((3, "linear"), (5, "linear"), (3, "cosine")):
            one = network(width, num_outputs, head)
            one(rows, compute).sum().backward()
            assert len(versions) == number
            layer = one.net[0]
            assert isinstance(layer, nn.Linear)
            found, layer.weight.grad = layer.weight.grad, None
            plain = one(rows)
            torch.testing.assert_close(one(rows, compute), plain)
            plain.sum().backward()
            torch.testing.assert_close(found, layer.weight.grad)
