"""What is learned beside the task: the losses by hand, and what is refused."""

import math

import pytest
import torch

from l2d.methods.auxiliary import make_aux
from l2d.utils.errors import ParameterError

COSTS, LABELS = torch.tensor([[0.0, 2.0], [1.0, 0.5]]), torch.tensor([1, -1])


def test_the_label_by_hand() -> None:
    """Chances (¾, ¼) and label 1: log 4, times the weight; nothing where the label is unknown."""
    aux = make_aux("label", 0.5, COSTS, LABELS, 2)
    assert aux is not None
    assert aux.num_outputs == 2
    loss = aux.loss(torch.tensor([[math.log(3), 0.0]]).repeat(2, 1), COSTS, LABELS)
    assert loss.tolist() == pytest.approx([0.5 * math.log(4), 0])
    assert make_aux("none", 1.0, COSTS, LABELS, 2) is None
    with pytest.raises(ParameterError, match=r"^aux=label: "):
        make_aux("label", 1.0, COSTS, torch.tensor([-1, -1]), 2)


def test_the_experts_by_hand() -> None:
    """The largest training cost, 2, is the scale: targets (1, 0) and (½, ¾). At σ = (¾, ½) the log losses are log(4/3) and
    log 2; then ½ log(4/3) + ½ log 4 and log 2. A dearer one counts as 2."""
    aux = make_aux("experts", 3.0, COSTS, torch.full((2,), -1), 0)
    assert aux is not None
    assert aux.num_outputs == 2
    outputs = torch.tensor([[math.log(3), 0.0]]).repeat(2, 1)
    first, second = math.log(4 / 3) + math.log(2), (math.log(4 / 3) + math.log(4)) / 2 + math.log(2)
    assert aux.loss(outputs, COSTS, LABELS).tolist() == pytest.approx([3 * first, 3 * second])
    dear = torch.tensor([[0.0, 9.0]])
    assert aux.loss(outputs[:1], dear, LABELS[:1]).tolist() == pytest.approx([3 * first])
