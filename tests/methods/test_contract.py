"""What every file in conf/method/ must hold to; a new method is tested without a line here."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch

from l2d.assembly.make import make
from l2d.config import Component, check, compose, groups
from l2d.core.costs import cheapest
from l2d.core.decisions import argmax_last
from l2d.methods.method import Evidence, Method
from l2d.utils.errors import L2DError, ParameterError

P, CLASSES = 4, 5
METHODS = sorted(groups()["method"])


def training_costs(n: int = 200, seed: int = 0, p: int = P) -> torch.Tensor:
    """Imbalanced: expert k is right with a probability that falls with k; every expert is the cheapest somewhere."""
    rng = torch.Generator().manual_seed(seed)
    wrong = torch.rand(n, p, generator=rng) < torch.linspace(0.2, 0.9, p)
    wrong[:p] = ~torch.eye(p, dtype=torch.bool)[:n]
    return wrong.double() + torch.linspace(0.5, 0.1, p).double()


@cache
def config(name: str) -> Component:
    """Composing takes longer than most of these tests."""
    return check(compose([f"method={name}"])).method


def build(name: str, decision: str = "argmax", costs: torch.Tensor | None = None) -> Method:
    costs = training_costs() if costs is None else costs
    method = make(config(name), costs=costs, num_classes=CLASSES, decision=decision)
    assert isinstance(method, Method)
    method.learn(evidence(costs))
    return method


def evidence(costs: torch.Tensor) -> Evidence:
    """As if the label said which expert is the cheapest. An expert's price is what it costs where it is right."""
    known = costs.nan_to_num(nan=torch.inf)
    prices = known.amin(dim=0)
    return Evidence(costs - prices, prices, cheapest(known))


def batch(method: Method, n: int = 8, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    outputs = torch.rand(n, method.num_outputs, generator=rng, dtype=torch.float64) * 2 - 1
    return outputs, training_costs(n, seed), torch.randint(CLASSES, (n,), generator=rng)


@pytest.fixture(params=METHODS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_one_loss_per_example(name: str) -> None:
    assert config(name).name == name
    method = build(name)
    outputs, costs, labels = given_ = batch(method)
    before = [tensor.clone() for tensor in given_]
    whole = method.loss(outputs, costs, labels)
    method.decide(outputs)
    assert all(torch.equal(a, b) for a, b in zip(given_, before, strict=True))
    assert whole.shape == (8,)
    alone = torch.cat([method.loss(outputs[i : i + 1], costs[i : i + 1], labels[i : i + 1]) for i in range(8)])
    torch.testing.assert_close(whole, alone)


def test_gradcheck(name: str) -> None:
    method = build(name)
    outputs, costs, labels = batch(method, n=3)
    assert torch.autograd.gradcheck(lambda z: method.loss(z, costs, labels), outputs.requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_extreme_outputs_in_every_dtype(name: str, dtype: torch.dtype) -> None:
    """Loss, gradient, decision and posterior at the corners of what the method says it supports."""
    method = build(name)
    ends = torch.tensor([-method.score_range, 0.0, method.score_range])
    corners = torch.cartesian_prod(*[ends] * method.num_outputs).to(dtype).requires_grad_()
    costs = training_costs(len(corners)).to(dtype)
    loss = method.loss(corners, costs, torch.zeros(len(corners), dtype=torch.long))
    loss.double().sum().backward()
    assert torch.isfinite(loss).all()
    assert corners.grad is not None
    assert torch.isfinite(corners.grad).all()
    assert method.decide(corners).shape == (len(corners),)
    if method.has_posterior:
        posterior = method.posterior(corners)
        assert torch.isfinite(posterior).all()
        assert posterior.dtype.itemsize >= 4  # a bfloat16 has ties where there are none


def does(action: Callable[[], object]) -> bool:
    try:
        action()
    except ParameterError:
        return False
    return True


def test_capabilities_are_true(name: str) -> None:
    method = build(name)
    outputs, costs, _ = batch(method)
    can = method.capabilities()
    assert can["has_posterior"] == does(lambda: build(name, "posterior"))
    assert can["takes_prices_later"] == does(lambda: method.reprice(torch.zeros(P)))
    assert can["takes_prices_later"] == (method.expected_errors(outputs) is not None)
    unlabelled = Evidence(costs, torch.zeros(P), torch.full((len(costs),), -1))
    assert can["needs_labels"] != does(lambda: method.learn(unlabelled))
    if can["estimates_costs"]:
        scale = dict(method.named_buffers())["reward_scale"]
        torch.testing.assert_close(method.expected_costs(outputs), (1 - torch.sigmoid(outputs)) * scale)


def test_decisions_are_experts(name: str) -> None:
    """A method says whether it decides by the largest utility; a guard must not shift another rule."""
    for decision in ["argmax", "posterior"] if build(name).has_posterior else ["argmax"]:
        method = build(name, decision)
        outputs = batch(method, n=50)[0]
        chosen = method.decide(outputs)
        assert chosen.dtype == torch.long
        assert set(chosen.tolist()) <= set(range(P))
        assert len(set(chosen.tolist())) > 1
        utilities = method.utilities(outputs)
        assert utilities.shape == (50, P)
        assert torch.equal(chosen, argmax_last(utilities)) == method.by_argmax


def test_posterior_is_a_distribution_and_decides(name: str) -> None:
    method = build(name)
    if not method.has_posterior:
        with pytest.raises(ParameterError, match="decision=posterior") as caught:
            build(name, "posterior")
        assert caught.value.parameter in (f"method={config(name).name}", "method.tau")
        return
    outputs = batch(method, n=50)[0]
    posterior = method.posterior(outputs)
    assert posterior.shape == (50, P)
    torch.testing.assert_close(posterior.sum(1), torch.ones(50, dtype=posterior.dtype))
    assert torch.equal(build(name, "posterior").decide(outputs), posterior.argmax(1))
    assert torch.equal(method.decide(outputs, "posterior"), posterior.argmax(1))
    costs = training_costs(50)
    mass = method.mass(costs)  # what it is a share of: most for the cheapest
    assert mass.shape == (50, P)
    assert (mass >= 0).all()
    assert torch.equal(mass.argmax(1), cheapest(costs))


def test_training_learns_the_cheapest_expert(name: str) -> None:
    """Free outputs for four inputs, each with one right expert: descent on the mean loss must end at the right decisions.

    A wrong sign in the loss, in a reward or in a cost ends elsewhere.
    """
    costs = 1 - torch.eye(P)
    method = build(name, costs=costs)
    outputs = torch.zeros(P, method.num_outputs, requires_grad=True)
    optimizer = torch.optim.Adam([outputs], lr=0.05)
    for _ in range(100):
        optimizer.zero_grad()
        scores = torch.tanh(outputs) if method.head == "cosine" else outputs
        method.loss(scores, costs, torch.arange(P)).mean().backward()
        optimizer.step()
    assert method.decide(outputs.detach()).tolist() == [0, 1, 2, 3]


def test_state_is_all_in_the_checkpoint(name: str) -> None:
    """A method built from other costs and then loaded gives the same losses: nothing taken from the costs lives outside buffers."""
    original, other = build(name), build(name, costs=2 * training_costs(50, seed=1).flip(1))
    other.load_state_dict(original.state_dict())
    outputs, costs, labels = batch(original)
    assert torch.equal(original.loss(outputs, costs, labels), other.loss(outputs, costs, labels))


def test_a_buffer_called_as_a_parameter_can_be_given_as_one(name: str) -> None:
    """So a run is built again without its training costs, which a rule for ρ or an order needs."""
    original, component = build(name), config(name)
    buffers = dict(original.named_buffers())
    known = {key: buffers[key].tolist() for key in component.arguments if key in buffers}
    changed = replace(component, arguments={**component.arguments, **known})
    again = make(changed, costs=1 - torch.eye(P), num_classes=CLASSES, decision="argmax")
    again.load_state_dict(original.state_dict())
    outputs = batch(original, n=50)[0]
    assert torch.equal(again.decide(outputs), original.decide(outputs))


def test_bad_costs_are_refused(name: str) -> None:
    for costs in (torch.zeros(3, 1), torch.tensor([[0.0, -1.0]]), torch.tensor([[0.0, float("inf")]])):
        with pytest.raises(L2DError, match="costs"):
            build(name, costs=costs)


def test_outcomes_that_a_log_does_not_know(name: str) -> None:
    """Methods either refuse them, or learn from the others alone: nothing pulls at the scores of experts that were not asked."""
    costs = training_costs()
    asked = torch.rand(costs.shape, generator=torch.Generator().manual_seed(3)) < 0.6
    asked[:, 0] |= ~asked.any(dim=1)
    known = costs.where(asked, torch.nan)
    if not build(name).learns_from_logs:
        with pytest.raises(L2DError, match="costs"):
            build(name, costs=known)
        return
    method = build(name, costs=known)
    for buffer, value in method.named_buffers():
        assert value.isfinite().all(), buffer
    outputs, some, labels = batch(method, n=len(asked[:8]))
    some = some.where(asked[:8], torch.nan)
    outputs.requires_grad_()
    losses = method.loss(outputs, some, labels)
    assert losses.isfinite().all()
    [slope] = torch.autograd.grad(losses.sum(), outputs)
    assert slope.isfinite().all()
    if method.num_outputs == P:  # else the outputs are of labels
        assert (slope[~asked[:8]] == 0).all()
        assert (slope[asked[:8]] != 0).all()
