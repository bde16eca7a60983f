"""What a run says of its settings before it trains."""

from collections.abc import Callable

import pytest
import torch
from omegaconf import DictConfig
from tests.running import train

from l2d.config import compose
from l2d.methods.method import Evidence
from l2d.methods.priced import Priced
from l2d.routing.advice import remarks
from l2d.routing.build import make_method

EXPERTS = ("big", "small")
PRICES = torch.tensor([0.3, 0.1], dtype=torch.float64)


def learned(cfg: DictConfig, labels: list[int], num_classes: int = 2, right: tuple[int, ...] = (0,)) -> Priced:
    """big is right at the labels in `right`, small everywhere else."""
    given = torch.tensor(labels)
    big = torch.isin(given, torch.tensor(right))
    errors = torch.stack([~big, big], dim=1).double()
    method = make_method(cfg, errors + PRICES, num_classes)
    assert isinstance(method, Priced)
    method.learn(Evidence(errors, PRICES, given))
    return method


def said(*overrides: str, labels: list[int], num_classes: int = 2, right: tuple[int, ...] = (0,)) -> list[str]:
    cfg = compose(overrides)
    return remarks(cfg, learned(cfg, labels, num_classes, right), EXPERTS)


def test_a_label_that_tells_experts_apart_needs_no_remark() -> None:
    for method in ("plugin", "label_regression"):
        assert said("dataset=mmlu", f"method={method}", labels=[0, 1] * 10) == []
    assert said("dataset=mmlu", "method=cost_regression", labels=[0, 1] * 10, right=()) == []


@pytest.mark.parametrize(
    ("dataset", "label", "advice"),
    [
        (["dataset=mmlu"], "dataset.label=answer", "a label that tells experts apart is wanted, such as dataset.label=subject"),
        (["dataset=mmlu_sim"], "dataset.label=answer", "a label that tells experts apart is wanted, such as dataset.label=subject"),
        (["dataset=mmlu_sim", "dataset.label=subject"], "dataset.label=subject", "a label that tells experts apart is wanted"),
        (["dataset=table", "dataset.label=kind"], "dataset.label=kind", "a label that tells experts apart is wanted"),
        ([], "the label", "method=cost_regression goes by the input alone"),
    ],
)  # fmt: skip
def test_one_expert_whatever_the_label(dataset: list[str], label: str, advice: str) -> None:
    """big is right everywhere, for .2 more: at both labels the cheaper."""
    always = f"whatever {label} says, big has the least expected cost, so"
    assert said(*dataset, "method=plugin", labels=[0, 1] * 10, right=(0, 1)) == [
        f"method=plugin: {always} everything goes there; {advice}"
    ]
    assert said(*dataset, "method=label_regression", labels=[0, 1] * 10, right=(0, 1)) == [
        f"method=label_regression: {always} only the correction can send an input elsewhere; {advice}"
    ]


def test_prices_count_and_labels_without_rows_do_not() -> None:
    """Label 2 has no row, so the mean of all, by which small is the cheaper. Errors of 1/6 and 5/6 with one row of the mean: with
    prices, big is the cheaper at label 0; with big's raised by a whole error, small is everywhere."""
    cfg = compose(["dataset=table", "dataset.label=kind", "method=plugin"])
    method = learned(cfg, [0] * 10 + [1] * 10, num_classes=3, right=(0, 1))
    assert "big has the least" in remarks(cfg, method, EXPERTS)[0]
    apart = learned(cfg, [0] * 10 + [1] * 10)
    assert remarks(cfg, apart, EXPERTS) == []
    apart.reprice(torch.tensor([1.3, 0.1]))
    assert "small has the least" in remarks(cfg, apart, EXPERTS)[0]


def test_labels_of_few_rows() -> None:
    line = (
        "dataset.label=id: 8 labels, half of them or more with fewer than 5 rows to learn from, which say little of an expert;"
        " one with fewer values is wanted"
    )
    table = ("dataset=table", "dataset.label=id", "method=plugin")
    assert said(*table, labels=[*range(8)] * 4, num_classes=8) == [line]
    assert said(*table, labels=[*range(8)] * 5, num_classes=8) == []
    assert said(*table, labels=[*range(8)] * 4 + [*range(5)], num_classes=8) == []  # five of them have five
    assert said("method=plugin", labels=[*range(8)] * 4, num_classes=8)[0].endswith("raise validation_fraction")


def test_a_weight_of_nothing() -> None:
    cfg = compose(["method=plugin", "aux_weight=3"])
    method = learned(cfg, [0, 1] * 10)
    assert remarks(cfg, method, EXPERTS) == ["aux_weight=3: without effect; aux=none learns nothing beside the task"]
    assert remarks(compose(["aux_weight=3", "aux=label"]), method, EXPERTS) == []
    assert remarks(compose([]), method, EXPERTS) == []


@pytest.mark.slow
def test_a_run_prints_them(tiny: Callable[..., DictConfig], capsys: pytest.CaptureFixture[str]) -> None:
    """The letters of simulated answers say nothing of the models; the subjects do."""
    given = ("dataset=mmlu_sim", "dataset.questions=600", "method=plugin")
    train(tiny(*given, "recipe.epochs=1"))
    by_letter = "method=plugin: whatever dataset.label=answer says, strong (simulated) has the least expected cost"
    assert capsys.readouterr().out.count(by_letter) == 1
    train(tiny(*given, "dataset.label=subject", "recipe.epochs=1"))
    assert "whatever" not in capsys.readouterr().out
