"""What the parameters of methods may be: declared in their constructors, and checked by the config before anything is built."""

import inspect
import math
from typing import Any

import pytest

from l2d.methods.comp_sum import CompSum
from l2d.methods.cost_sensitive import CostSensitive
from l2d.methods.cross_entropy import CrossEntropy
from l2d.methods.focal import Focal
from l2d.methods.ldam import LDAM
from l2d.methods.logit_adjustment import LogitAdjustment
from l2d.methods.method import Method
from l2d.methods.one_vs_all import OneVsAll
from l2d.methods.priced import CostRegression, Plugin
from l2d.utils import parameters
from l2d.utils.errors import ParameterError

NOT_NEGATIVE = (0, 0.5, 3.0), (-0.1, math.inf, math.nan, "1", True, None)
ABOVE_ZERO = (0.1, 30), (0.0, -1.0, math.inf, "x")
SHARES = (0, 0.5, 1), (-0.1, 1.1, math.nan)
FLAGS = (True, False), (0, "true", None)

# (class, parameter): values that are allowed, values that are not.
CASES: dict[tuple[type[Method], str], tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    (CompSum, "tau"): NOT_NEGATIVE,
    (CompSum, "rewards"): (("sum_others", "complement"), ("x", None)),
    (CompSum, "rho"): ((1.0, [1, 2]), (0.0, "x")),  # tests/utils/test_parameters.py has the rest
    (CostSensitive, "tau"): NOT_NEGATIVE,
    (CostSensitive, "pairs"): (("rewards", "regret"), ("x",)),
    (CostSensitive, "psi"): (("hinge", "rho_margin", "comp_sum"), ("x",)),
    (CostSensitive, "form"): (("max", "sum", "log_sum"), ("x",)),
    (CostSensitive, "rewards"): (("sum_others", "complement"), ("x",)),
    (CostSensitive, "rho"): ((1.0, [1, 2]), (0.0, "x")),
    (CrossEntropy, "weighted"): FLAGS,
    (CrossEntropy, "beta"): SHARES,
    (Focal, "gamma"): NOT_NEGATIVE,
    (LDAM, "max_margin"): ABOVE_ZERO,
    (LDAM, "scale"): ABOVE_ZERO,
    (LogitAdjustment, "tau"): NOT_NEGATIVE,
    (LogitAdjustment, "post_hoc"): FLAGS,
    (OneVsAll, "rule"): (("argmax", "threshold", "cascade"), ("x", None)),
    (OneVsAll, "threshold"): SHARES,
    (OneVsAll, "order"): (([3, 1, 2], None), ([0, 1], [1.5], "12", 1)),
    (Plugin, "smoothing"): NOT_NEGATIVE,
    (CostRegression, "smoothing"): NOT_NEGATIVE,
    (CostRegression, "label_weight"): NOT_NEGATIVE,
    (CostRegression, "by_label"): FLAGS,
}


def declared(cls: type[Method], name: str) -> Any:
    return inspect.signature(cls).parameters[name].annotation


@pytest.mark.parametrize(("cls", "name"), CASES)
def test_allowed_and_refused(cls: type[Method], name: str) -> None:
    allowed, refused = CASES[cls, name]
    for value in allowed:
        parameters.check_value(name, value, declared(cls, name))
    for value in refused:
        with pytest.raises(ParameterError) as caught:
            parameters.check_value(name, value, declared(cls, name))
        assert caught.value.parameter.partition("[")[0] == name


def test_every_parameter_has_a_case() -> None:
    from_the_run = {"costs", "num_classes", "decision", "largest_cost", "mean_costs"}
    for cls in {cls for cls, _ in CASES}:
        assert {name for owner, name in CASES if owner is cls} == {*inspect.signature(cls).parameters} - from_the_run
