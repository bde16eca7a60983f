"""Advice on a run's settings before it trains."""

import re

import pytest
import torch

from l2d.assembly.advice import advice
from l2d.assembly.build import make_method
from l2d.config import Experiment, check, compose
from l2d.methods.method import Evidence
from l2d.methods.priced import Priced

EXPERTS = ("big", "small")
PRICES = torch.tensor([0.3, 0.1], dtype=torch.float64)


def learned(experiment: Experiment, labels: list[int], num_classes: int = 2, right: tuple[int, ...] = (0,)) -> Priced:
    """big is right at the labels in `right`, small everywhere else."""
    given = torch.tensor(labels)
    big = torch.isin(given, torch.tensor(right))
    errors = torch.stack([~big, big], dim=1).double()
    method = make_method(experiment, errors + PRICES, num_classes)
    assert isinstance(method, Priced)
    method.learn(Evidence(errors, PRICES, given))
    return method


def said(*overrides: str, labels: list[int], num_classes: int = 2, right: tuple[int, ...] = (0,)) -> list[str]:
    experiment = check(compose(overrides))
    return advice(experiment, learned(experiment, labels, num_classes, right), EXPERTS)


def test_a_label_that_tells_experts_apart_needs_no_remark() -> None:
    assert said("dataset=mmlu", "method=plugin", labels=[0, 1] * 10) == []
    assert said("dataset=mmlu", "method=cost_regression", labels=[0, 1] * 10, right=()) == []


@pytest.mark.parametrize(
    ("given", "label", "remedy"),
    [
        ("dataset=mmlu method=label_regression", "dataset.label=answer", "another label"),
        ("method=plugin", "the label", "the input"),
    ],
)
def test_one_expert_whatever_the_label(given: str, label: str, remedy: str) -> None:
    """big is right everywhere, for .2 more: at both labels the cheaper."""
    [line] = said(*given.split(), labels=[0, 1] * 10, right=(0, 1))
    assert re.match(rf"method=\w+: .*{label}.*{remedy}$", line)
    assert "big" in line


def test_prices_count_and_labels_without_rows_do_not() -> None:
    """Label 2 has no row, so the mean of all, by which small is the cheaper. Errors of 1/6 and 5/6 with one row of the mean: with
    prices, big is the cheaper at label 0; with big's raised by a whole error, small is everywhere."""
    cfg = check(compose(["dataset=table", "dataset.label=kind", "method=plugin"]))
    method = learned(cfg, [0] * 10 + [1] * 10 + [-1] * 80, num_classes=3, right=(0, 1))
    assert "big" in advice(cfg, method, EXPERTS)[0]
    apart = learned(cfg, [0] * 10 + [1] * 10)
    assert advice(cfg, apart, EXPERTS) == []
    apart.reprice(torch.tensor([1.3, 0.1]))
    assert "small" in advice(cfg, apart, EXPERTS)[0]


def test_labels_of_few_rows() -> None:
    table = ("dataset=table", "dataset.label=id", "method=plugin")
    [line] = said(*table, labels=[*range(8)] * 4, num_classes=8)
    assert re.match("dataset.label=id: .*8 values", line)
    assert said(*table, labels=[*range(8)] * 5, num_classes=8) == []
    assert said(*table, labels=[*range(8)] * 4 + [*range(5)], num_classes=8) == []  # five of them have five
    assert said("method=plugin", labels=[*range(8)] * 4, num_classes=8)[0].count("validation_fraction") == 1
