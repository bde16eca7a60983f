"""Prices that are estimated from the inputs."""

import pytest
import torch

from l2d.networks.prices import PriceModel
from l2d.networks.tabular import MLP


def test_prices_are_linear_in_rows_of_numbers() -> None:
    rng = torch.Generator().manual_seed(0)
    inputs = torch.randn(2_000, 3, generator=rng) * 5 + 2
    prices = torch.stack([1 + 0.1 * (inputs[:, 0] + 10), torch.full((2_000,), 0.25)], dim=1)
    known = prices.where(torch.rand(2_000, 2, generator=rng) < 0.3, torch.nan)
    model = PriceModel.fitted(inputs, known)
    torch.testing.assert_close(model(inputs), prices, atol=0.06, rtol=0)


def test_prices_of_images_are_means_and_none_is_negative() -> None:
    images = torch.zeros(4, 8, 8, 1, dtype=torch.uint8)
    nan = torch.nan
    model = PriceModel.fitted(images, torch.tensor([[1.0, nan], [3.0, 5.0], [nan, 7.0], [nan, nan]]))
    assert model(images[:2]).tolist() == [pytest.approx([2, 6], rel=1e-6)] * 2
    inputs = torch.tensor([[0.0], [1.0], [2.0], [3.0]]).repeat(50, 1)
    model = PriceModel.fitted(inputs, inputs.clamp(min=0))
    assert float(model(torch.tensor([[-9.0]]))) == 0


def test_they_follow_the_outputs_but_not_in_training() -> None:
    network = MLP(width=4, depth=1, dropout=0.0, num_outputs=2, head="linear", mean=[0.0] * 3, std=[1.0] * 3)
    network.price_model = PriceModel(3, 2)
    network.price_model.weight[-1] = torch.tensor([0.5, 0.25])
    inputs = torch.randn(5, 3)
    assert network.train()(inputs).shape == (5, 2)
    outputs = network.eval()(inputs)
    assert outputs[:, 2:].tolist() == [[0.5, 0.25]] * 5
    torch.testing.assert_close(outputs[:, :2], network.train()(inputs))
