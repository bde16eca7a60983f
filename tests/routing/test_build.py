"""What is refused before any data are read, and under which name."""

import pytest
import torch

from l2d.config import compose, groups
from l2d.methods.method import Evidence
from l2d.routing.build import check_without_data, make_method, naming_the_method
from l2d.utils.errors import L2DError


@pytest.mark.parametrize("method", groups()["method"])
def test_every_method_passes_without_data(method: str) -> None:
    check_without_data(compose([f"method={method}"]))


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["aux=foo"], "aux=foo: unknown"),
        (["aux_weight=-1"], r"aux_weight=-1\.0: must be"),
        (["method=plugin", "method.smoothing=-1"], r"method\.smoothing=-1: must be"),
        (["method=label_regression", "method.label_weight=-1"], r"method\.label_weight=-1: must be"),
        (["method=focal", "method.gamma=x"], r"method\.gamma=x: must be of type float"),
        (["method.rho.total=0", "method.rho.offset=0"], r"method\.rho\.offset=0"),
        (["recipe.ema=1.5"], r"recipe\.ema=1\.5: must be"),
        (["recipe.patience=0"], r"recipe\.patience=0: must be"),
        (["recipe.patience=3"], r"recipe\.patience: stops"),
        (["checkpoint=first"], "checkpoint=first: unknown"),
        (["decision=mode"], "decision=mode: unknown"),
        (["sampling=twice"], "sampling=twice: unknown"),
        (["cost.noise=-1"], r"cost\.noise=-1\.0: must be"),
        (["seed=-1"], "seed=-1: must be"),
    ],
)
def test_a_dry_run_notices(overrides: list[str], line: str) -> None:
    with pytest.raises(L2DError, match=f"^{line}"):
        check_without_data(compose(overrides))


def test_a_dry_run_leaves_lists_to_those_who_know_the_experts() -> None:
    check_without_data(compose(["method=tdef", "method.rho=[1,2,3,4,5]"]))
    check_without_data(compose(["method.rho.values=[1,2,3,4,5]"]))
    check_without_data(compose(["method=cascade", "method.order=[3,1,2]"]))


def test_a_method_is_called_by_its_name() -> None:
    cfg = compose(["method=cost_regression", "decision=posterior"])
    costs = 1 - torch.eye(2, dtype=torch.float64)
    with pytest.raises(L2DError, match=r"^method=cost_regression: has no posterior, which decision=posterior goes by"):
        make_method(cfg, costs, num_classes=2)
    cfg = compose(["method=plugin"])
    unlabelled = Evidence(costs, torch.zeros(2), torch.tensor([-1, -1]))
    with (
        pytest.raises(L2DError, match=r"^method=plugin: goes by the label, and these data have none"),
        naming_the_method(cfg),
    ):
        make_method(cfg, costs, num_classes=2).learn(unlabelled)
    with pytest.raises(L2DError, match=r"^dataset\.path: missing$"), naming_the_method(cfg):
        raise L2DError("dataset.path: missing")
