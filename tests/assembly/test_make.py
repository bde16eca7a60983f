"""Objects from components."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from l2d.assembly.make import blaming_dataset, make
from l2d.config import Component
from l2d.utils.errors import ParameterError


class Parent:
    def __init__(self, *, costs: int, decision: str) -> None:
        self.costs, self.decision = costs, decision


class Child(Parent):
    def __init__(self, *, gamma: float, **others: Any) -> None:
        super().__init__(**others)
        self.gamma = gamma


def test_a_class_gets_of_what_is_offered_what_it_takes() -> None:
    """With open arguments it gets all that is offered, and hands it on to its parent."""
    one = make(Component("method", "one", f"{__name__}.Parent", {"decision": "argmax"}), costs=3, num_classes=2)
    assert (one.costs, one.decision) == (3, "argmax")
    one = make(Component("method", "one", f"{__name__}.Child", {"gamma": 0.5}), costs=3, decision="argmax")
    assert (one.gamma, one.costs, one.decision) == (0.5, 3, "argmax")


def test_components_in_an_argument_are_built_too() -> None:
    inner = Component("method.decision", "", f"{__name__}.Parent", {"costs": 1, "decision": "argmax"})
    one = make(Component("method", "one", f"{__name__}.Parent", {"decision": [inner, {"deep": inner}]}), costs=3)
    assert isinstance(one.decision[0], Parent)
    assert isinstance(one.decision[1]["deep"], Parent)


class Buggy:
    def __init__(self) -> None:
        raise ZeroDivisionError


def test_a_bug_in_a_class_comes_with_its_key() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        make(Component("method", "mine", f"{__name__}.Buggy", {}))
    assert caught.value.__notes__ == [f"in method=mine ({__name__}.Buggy)"]


def test_a_missing_class_is_told_from_a_missing_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_needs.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        make(Component("method", "mine", "my_needs.Mine", {}))
    for target in ("my_nothing.Mine", "my_nothing.inner.Mine", "l2d.methods.comp_sum.Mine"):
        with pytest.raises(ParameterError, match=rf"^method\._target_={target}: no such class"):
            make(Component("method", "mine", target, {}))


@pytest.mark.parametrize(("encoder", "key"), [({"name": "a"}, "router.reads"), ({"name": "b"}, "dataset.encoder")])
def test_an_encoder_is_blamed_where_it_was_given(encoder: dict[str, str], key: str) -> None:
    experiment: Any = SimpleNamespace(dataset=SimpleNamespace(key="dataset", name="t", target="l2d.T"))
    experiment.plain = {"dataset": {"encoder": encoder}, "router": {"reads": {"name": "a"}}}
    with pytest.raises(ParameterError) as caught, blaming_dataset(experiment):
        raise ParameterError("encoder.max_length", "is too small", 1)
    assert caught.value.parameter == f"{key}.max_length"
