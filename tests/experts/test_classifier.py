"""One classifier: its network, its bar, and what is said when it diverges."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import DictConfig
from tests.experts.tiny_experts import TINY, experts
from tests.running import assembled

from l2d.config import check, compose
from l2d.data.arrays import Arrays
from l2d.data.sets.digits import Digits
from l2d.experts import classifier
from l2d.experts.classifier import Classifiers
from l2d.experts.request import ComputeOptions
from l2d.lightning import learner
from l2d.lightning.learner import tried
from l2d.utils.errors import ParameterError


def test_an_expert_that_diverges_in_its_last_step_is_not_kept(tiny: Callable[..., DictConfig], tmp_path: Path) -> None:
    """The losses of an epoch are those before its last step."""
    once = ["experts.recipe.epochs=1", "experts.recipe.batch_size=4096", "experts.recipe.optimizer.lr=1e30"]
    with pytest.raises(ParameterError, match=r"^experts\.recipe\.optimizer\.lr: .*not finite"):
        assembled(tiny(*TINY, *once))
    assert not list(tmp_path.glob("runs/experts/*/entry.json"))


@pytest.mark.parametrize("takes", [True, False])
def test_a_network_gets_statistics_if_it_takes_them(takes: bool) -> None:
    given: dict[str, Any] = {}

    class Plain(torch.nn.Linear):
        def __init__(self, *, num_outputs: int, head: str) -> None:
            given.update(num_outputs=num_outputs, head=head)
            super().__init__(3, num_outputs)

    class Standardised(Plain):
        def __init__(self, *, mean: list[float], std: list[float], num_outputs: int, head: str) -> None:
            super().__init__(num_outputs=num_outputs, head=head)
            given.update(mean=mean, std=std)

    inputs, labels = torch.tensor([[0.0, 4.0], [2.0, 4.0], [99.0, 99.0]]), torch.tensor([0, 1, 1])
    arrays = Arrays(inputs, labels, inputs, labels, 2)
    recipe = check(compose([])).recipe
    classifiers = Classifiers(arrays, Standardised if takes else Plain, recipe, ComputeOptions())
    classifiers._network(torch.tensor([0, 1]))  # statistics of these rows alone
    expected = {"num_outputs": 2, "head": "linear"}
    assert given == (expected | {"mean": [1.0, 4.0], "std": [1.0, 1e-6]} if takes else expected)


def test_recipe_and_machine_reach_a_classifier(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {}

    def trainer(**options: Any) -> Any:
        device = SimpleNamespace(root_device=torch.device("cpu"))
        return SimpleNamespace(strategy=device, fit=lambda _, **given: found.update(given), **options)

    monkeypatch.setattr(classifier, "Classifier", lambda **options: found.update(options))
    monkeypatch.setattr(classifier, "make_trainer", trainer)
    arrays, rows = Digits().load(Path()), torch.arange(7, 107)
    recipe = ("epochs=7", "batch_size=50", "schedule=constant", "augment=crop")
    made = experts(*(f"experts.recipe.{one}" for one in recipe))
    machine = ComputeOptions(deterministic=True, data_on_device="false")
    told, _ = Classifiers(arrays, made.network, made.recipe, machine)._fit(rows, 5, "expert", parts=2)
    assert (found["schedule"], found["parts"]) == ("constant", 2)
    options: Any = told
    assert (options.max_epochs, options.accumulate_grad_batches, options.deterministic) == (7, 2, True)
    assert (options.accelerator, options.devices) == ("cpu", 1)  # however many there are
    batches = found["train_dataloaders"]
    assert (batches.seed, batches.augment, batches.pad, batches.sizes) == (5, "crop", 1, [25] * 4)
    assert torch.equal(batches.labels, arrays.train_labels[rows])
    assert not batches.inputs.resident
    first = found["network"]
    fast = {"precision": "bf16-mixed", "channels_last": True, "compile": "Default"}
    for module in (classifier, learner):
        monkeypatch.setattr(module, "speed", lambda *_: fast)
    risen = replace(made.recipe, schedule="one_cycle")
    told, _ = Classifiers(arrays, made.network, risen, machine)._fit(rows, 6, "expert", parts=2)
    assert (found["schedule"], found["channels_last"], found["compile_mode"]) == ("one_cycle", True, "default")
    options = told
    assert options.precision == "bf16-mixed"
    pairs = zip(first.parameters(), found["network"].parameters(), strict=True)
    assert not all(torch.equal(one, other) for one, other in pairs)  # another seed, other weights


@pytest.mark.parametrize("given", ["fused=True", "fused=False", "optimizer._target_=torch.optim.RMSprop"])
def test_the_recipe_says_whether_the_optimizer_is_one_kernel(given: str) -> None:
    """RMSprop has no such kernel and does without."""
    made = experts(f"experts.recipe.{given}")
    some = [torch.nn.Parameter(torch.zeros(1))]
    optimizer = tried(made.recipe.optimizer, made.recipe.fused, some)(some)
    assert bool(optimizer.defaults.get("fused")) is (given == "fused=True")
    assert isinstance(optimizer, torch.optim.RMSprop) is ("RMSprop" in given)
