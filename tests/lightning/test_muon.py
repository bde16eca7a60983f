"""Muon: kernels against singular values, everything else against AdamW."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import AdamW

from l2d.config.signatures import check_arguments, read_signature
from l2d.lightning.muon import RMS, Muon, Stacks, newton_schulz, orthogonal
from l2d.utils.errors import ParameterError


def towards_one(matrix: Tensor) -> Tensor:
    """The same polynomial, five times, on the singular values themselves."""
    left, values, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    values = values / values.square().sum().sqrt()
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return left @ values.diag() @ right


def kernels_of(*shapes: tuple[int, ...]) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(len(shapes))
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def give_gradients(parameters: Sequence[nn.Parameter], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)


@given(rows=st.integers(1, 12), columns=st.integers(1, 40), seed=st.integers(0, 100))
def test_the_iteration_acts_on_singular_values_alone(rows: int, columns: int, seed: int) -> None:
    matrix = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    assert torch.allclose(newton_schulz(matrix[None])[0], towards_one(matrix), atol=1e-6)


def test_a_first_step_by_hand() -> None:
    """Without decay, and with an average of the one gradient: any multiple of it has the same direction."""
    [kernel] = kernels_of((6, 4, 3, 3))
    before = kernel.detach().clone()
    give_gradients([kernel], seed=1)
    assert kernel.grad is not None
    columns_last = kernel.grad.permute(0, 2, 3, 1).flatten(1)
    size = 0.2 * 36**0.5
    expected = before - 0.01 * size * towards_one(columns_last).view(6, 3, 3, 4).permute(0, 3, 1, 2)
    Muon([kernel], lr=0.01, weight_decay=0.0).step()
    assert torch.allclose(kernel.double(), expected.double(), atol=1e-6)


def test_the_average_looks_ahead() -> None:
    """Nesterov's: the average after the second gradient, mixed with that gradient once more."""
    [kernel] = kernels_of((3, 2, 1, 1))
    optimizer = Muon([kernel], lr=0.01, weight_decay=0.0, momentum=0.8)
    gradients = []
    for seed in (1, 2):
        give_gradients([kernel], seed)
        assert kernel.grad is not None
        gradients.append(kernel.grad.clone())
        before = kernel.detach().clone()
        optimizer.step()
    average = 0.8 * 0.2 * gradients[0] + 0.2 * gradients[1]
    ahead = 0.2 * gradients[1] + 0.8 * average
    expected = before.flatten(1) - 0.01 * RMS * 3**0.5 * towards_one(ahead.flatten(1))
    assert torch.allclose(kernel.flatten(1).double(), expected.double(), atol=1e-6)


def test_decay_alone_and_no_gradient() -> None:
    kernel, frozen = kernels_of((4, 3, 3, 3), (4, 3, 3, 3))
    before = [weight.detach().clone() for weight in (kernel, frozen)]
    kernel.grad = torch.zeros_like(kernel)
    Muon([kernel, frozen], lr=0.1, weight_decay=0.5).step()
    assert torch.allclose(kernel, before[0] * 0.95)
    assert torch.equal(frozen, before[1])


def test_kernels_do_not_disturb_each_other() -> None:
    """Those with equally many outputs are padded to one width and computed together, also if channels lie last."""
    shapes = [(8, 3, 3, 3), (8, 8, 3, 3), (16, 8, 1, 1), (8, 2, 1, 1)]
    together, alone = kernels_of(*shapes), kernels_of(*shapes)
    alone = [nn.Parameter(kernel.detach().to(memory_format=torch.channels_last)) for kernel in alone]
    give_gradients(together, seed=5)
    give_gradients(alone, seed=5)
    Muon(together, lr=0.1).step()
    for kernel in alone:
        Muon([kernel], lr=0.1).step()
    for one, other in zip(together, alone, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_all_but_kernels_move_as_with_adamw() -> None:
    shapes = [(5, 4), (7,), (2, 3, 4)]
    ours, theirs = [*kernels_of(*shapes), *kernels_of((4, 3, 3, 3))], kernels_of(*shapes)
    optimizers = [Muon(ours, lr=0.1, weight_decay=0.2), AdamW(theirs, lr=0.1, weight_decay=0.2)]
    for seed in range(3):
        give_gradients(ours, seed)
        give_gradients(theirs, seed)
        for optimizer in optimizers:
            optimizer.step()
    assert all(torch.equal(*pair) for pair in zip(ours, theirs, strict=False))


def test_resumes_with_the_same_bits() -> None:
    shapes = [(4, 3, 3, 3), (5, 4)]
    whole, resumed = kernels_of(*shapes), kernels_of(*shapes)
    first = Muon(whole, lr=0.1)
    second = Muon(resumed, lr=0.1)
    for seed in range(4):
        if seed == 2:
            state = second.state_dict()
            second = Muon(resumed, lr=0.1)
            second.load_state_dict(state)
        for parameters, optimizer in ((whole, first), (resumed, second)):
            give_gradients(parameters, seed)
            optimizer.step()
    assert all(torch.equal(*pair) for pair in zip(whole, resumed, strict=True))


def test_a_closure_is_called_once_and_its_loss_returned() -> None:
    [kernel] = kernels_of((4, 3, 3, 3))
    calls = []

    def closure() -> Tensor:
        calls.append(1)
        loss = kernel.square().sum()
        loss.backward()
        return loss

    before = float(kernel.detach().square().sum())
    assert float(Muon([kernel], lr=0.01).step(closure).detach()) == before
    assert len(calls) == 1
    assert float(kernel.detach().square().sum()) < before


@pytest.mark.parametrize("momentum", [-0.1, 1.0])
def test_a_momentum_that_forgets_nothing_or_less_is_refused(momentum: float) -> None:
    with pytest.raises(ParameterError, match="momentum"):
        check_arguments({"momentum": momentum}, read_signature("l2d.lightning.muon.Muon") or {})


@pytest.mark.gpu
def test_one_graph_gives_what_single_operations_give() -> None:
    kernels = [kernel.detach().cuda() for kernel in kernels_of((8, 3, 3, 3), (8, 8, 3, 3), (16, 8, 1, 1))]
    stacks = Stacks(kernels)
    recorded = [view.clone() for view in stacks.directions(kernels)]
    single = stacks.views_of(orthogonal(*stacks.stacks, *stacks.sizes))
    assert all(torch.equal(*pair) for pair in zip(recorded, single, strict=True))
