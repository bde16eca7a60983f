"""Muon for convolutions, AdamW for the rest."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from l2d.utils.parameters import NonNegative, Positive, ShareBelowOne

RMS = 0.2  # of an update's entries, about AdamW's, so that one rate fits kernels and all other parameters
# Of Newton-Schulz's iteration, by K. Jordan (2024): five rounds bring all singular values near 1, though not exactly to it.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ROUNDS = 5
Tensors = list[Tensor] | tuple[Tensor, ...]


class Muon(AdamW):
    """AdamW, but a convolution's kernels [out, in, h, w], taken as a matrix [out, h·w·in], move by their averaged gradient made
    orthogonal: equally far in all directions. momentum: the share of the average that a step keeps. fused: AdamW's kernel."""

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: Positive = 1e-3,
        weight_decay: NonNegative = 1e-2,
        momentum: ShareBelowOne = 0.95,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, lr=lr, weight_decay=weight_decay, fused=fused)
        self.momentum = momentum
        self._stacks: dict[tuple[int, ...], Stacks] = {}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            kernels: list[Tensor] = [p for p in group["params"] if p.ndim == 4 and p.grad is not None]
            if kernels:
                self._move(kernels, group["lr"], group["weight_decay"])
            for kernel in kernels:  # AdamW passes over parameters without a gradient
                kernel.grad = None
        super().step()
        return loss

    def _move(self, kernels: Tensors, lr: float, weight_decay: float) -> None:
        for kernel in kernels:
            if not self.state[kernel]:  # under AdamW's names, which it expects when a state is loaded
                self.state[kernel] = {"step": torch.zeros(()), "exp_avg": torch.zeros_like(kernel)}
        members = tuple(map(id, kernels))
        if members not in self._stacks:
            self._stacks[members] = Stacks(kernels)
        gradients = [kernel.grad for kernel in kernels if kernel.grad is not None]
        averages = [self.state[kernel]["exp_avg"] for kernel in kernels]
        torch._foreach_lerp_(averages, gradients, 1 - self.momentum)
        ahead = torch._foreach_lerp(gradients, averages, self.momentum)  # Nesterov's
        torch._foreach_mul_(kernels, 1 - lr * weight_decay)
        torch._foreach_add_(kernels, self._stacks[members].directions(ahead), alpha=-lr)


class Stacks:
    """Kernels with equally many outputs, together as matrices padded with zeros: one after the other would take a GPU longer."""

    def __init__(self, kernels: Tensors) -> None:
        self.stacks, self.sizes = list[Tensor](), list[Tensor]()
        places = dict[int, tuple[int, int]]()  # of each kernel: its stack and its place there
        first = kernels[0]
        for number, rows in enumerate(sorted({len(kernel) for kernel in kernels})):
            members = [i for i, kernel in enumerate(kernels) if len(kernel) == rows]
            places |= {i: (number, place) for place, i in enumerate(members)}
            columns = [kernels[i][0].numel() for i in members]
            dtype = torch.bfloat16 if first.is_cuda else first.dtype
            self.stacks.append(torch.zeros(len(members), rows, max(columns), dtype=dtype, device=first.device))
            sizes = [RMS * max(rows, width) ** 0.5 for width in columns]
            self.sizes.append(torch.tensor(sizes, dtype=dtype, device=first.device)[:, None, None])
        self.shapes, self.places = [kernel.shape for kernel in kernels], [places[i] for i in range(len(kernels))]
        self.views = self.views_of(self.stacks)

    def views_of(self, stacks: Tensors) -> list[Tensor]:
        """The kernels within their stacks, with channels last as they usually are on a GPU."""
        views = []
        for (out, channels, height, width), (stack, place) in zip(self.shapes, self.places, strict=True):
            matrix = stacks[stack][place, :, : channels * height * width]
            views.append(matrix.view(out, height, width, channels).permute(0, 3, 1, 2))
        return views

    def directions(self, averages: Tensors) -> list[Tensor]:
        """About U Vᵀ for each kernel's average U Σ Vᵀ, times its size."""
        torch._foreach_copy_(self.views, averages)
        given = (*self.stacks, *self.sizes)
        on_gpu = self.stacks[0].is_cuda
        compute = recorded(tuple(tuple(x.shape) for x in given), self.stacks[0].device) if on_gpu else orthogonal
        return self.views_of(compute(*given))


def orthogonal(*given: Tensor) -> tuple[Tensor, ...]:
    """given: stacks [k, m, n], and as many sizes [k, 1, 1]."""
    half = len(given) // 2
    return tuple(newton_schulz(stack) * size for stack, size in zip(given[:half], given[half:], strict=True))


@cache
def recorded(shapes: tuple[tuple[int, ...], ...], device: torch.device) -> Callable[..., tuple[Tensor, ...]]:
    """`orthogonal` as one CUDA graph, shared by all runs of a process: it has a hundred short operations."""
    samples = tuple(torch.zeros(shape, dtype=torch.bfloat16, device=device) for shape in shapes)
    return torch.cuda.make_graphed_callables(orthogonal, samples)  # type: ignore[return-value]


def newton_schulz(stack: Tensor) -> Tensor:
    """[k, m, n] -> [k, m, n]: an odd polynomial of each matrix, which moves its singular values towards 1."""
    a, b, c = COEFFICIENTS
    x = stack / stack.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ROUNDS):
        squares = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(squares, squares, squares, beta=b, alpha=c), x, beta=a)
    return x
