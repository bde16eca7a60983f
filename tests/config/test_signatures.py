"""The source of a class, read without importing it, says what the class itself says."""

import ast
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from l2d.config import CONF, Recipe, signatures
from l2d.config.signatures import OTHERS, Parameter, check_arguments, find_class, may_exist, read_signature
from l2d.utils import parameters
from l2d.utils.errors import ParameterError


def targets(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("_target_"), str):
            yield node["_target_"]
        for value in node.values():
            yield from targets(value)


def configured() -> list[str]:
    found = {target for file in CONF.glob("*/*.yaml") for target in targets(yaml.safe_load(file.read_text()))}
    return sorted(target for target in found if target.startswith("l2d."))


def imported(target: str) -> type[Any]:
    module, _, name = target.rpartition(".")
    found = getattr(import_module(module), name)
    assert isinstance(found, type)
    return found


def signature(target: str) -> Mapping[str, Parameter]:
    read: Any = read_signature(target)
    return read


def constructors(cls: type[Any]) -> list[Any]:
    """Its own or the inherited one and, as long as one passes **others on, the next ones."""
    found = []
    for function in (vars(one)["__init__"] for one in cls.__mro__[:-1] if "__init__" in vars(one)):
        found.append(function)
        if all(one.kind is not one.VAR_KEYWORD for one in inspect.signature(function).parameters.values()):
            break
    return found


def real_parameters(cls: type[Any]) -> dict[str, inspect.Parameter]:
    given = [inspect.signature(one).parameters for one in constructors(cls)[::-1]]
    found = {name: one for parameters in given for name, one in parameters.items()}
    return {name: one for name, one in found.items() if name != "self" and one.kind is not one.VAR_KEYWORD}


def real_kinds(cls: type[Any]) -> dict[str, Any]:
    return {name: kind for function in constructors(cls)[::-1] for name, kind in kinds_of(function).items()}


def kinds_of(function: Any) -> dict[str, Any]:
    """The annotations of a constructor, also where they are texts whose names are imported for type checkers alone."""
    module = sys.modules[function.__module__]
    used = {*re.findall(r"\w+", " ".join(map(str, inspect.get_annotations(function).values())))}
    names: dict[str, Any] = {}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {one.name: getattr(import_module(node.module), one.name) for one in node.names if one.name in used}
    return typing.get_type_hints(function, {**names, **vars(module)}, include_extras=True)


@pytest.mark.parametrize("target", configured())
def test_the_source_says_what_the_class_says(target: str) -> None:
    cls, read = imported(target), signature(target)
    real = real_parameters(cls)
    assert find_class(target) is not None
    if cls.__init__ is object.__init__:
        assert read == {}
        return
    assert read.keys() == real.keys()
    assert {name for name, one in read.items() if one.required} == {
        name for name, one in real.items() if one.default is inspect.Parameter.empty
    }
    kinds = real_kinds(cls)
    for name, one in read.items():
        if one.kind is not Any:
            assert one.kind == kinds[name], name


@pytest.mark.parametrize("target", configured())
def test_no_annotation_with_bounds_goes_unread(target: str) -> None:
    """An alias of its own, or one that is not in utils/parameters.py, would silently allow everything."""
    cls = imported(target)
    if cls.__init__ is object.__init__:
        return
    kinds, read = real_kinds(cls), signature(target)
    unread = {name: kinds[name] for name, one in read.items() if one.kind is Any and kinds.get(name, Any) is not Any}
    for name, kind in unread.items():
        assert not plain_kinds(kind), f"{target}: {name} is {kind}, which is a matter of values and could be checked"


def plain_kinds(kind: Any) -> list[Any]:
    """The parts of an annotation that a value of a yaml file can be checked against."""
    if isinstance(kind, typing._AnnotatedAlias) or typing.get_origin(kind) is typing.Literal:  # type: ignore[attr-defined]
        return [kind]
    if kind in (int, float, bool, str):
        return [kind]
    return [part for one in typing.get_args(kind) for part in plain_kinds(one)]


MINE = """
from typing import Literal

from l2d.methods.cross_entropy import Focal
from l2d.utils.parameters import Positive, Share

from {dots}parts import Other as Base


class Own:
    def __init__(self, first, /, second: int = 3, *, tau: Positive, kind: Literal["a", "b"] = "a", odd: Unknown, **others):
        raise RuntimeError("never called")


class Inherits(Base):
    pass


class Theirs(Focal):
    pass


class Nothing:
    pass


class Empty(Nothing):
    pass


class Foreign(some.Base):
    pass


@dataclass
class Generated:
    size: int


raise RuntimeError("never imported")
"""
PARTS = """
raise RuntimeError("never imported")

class Other:
    def __init__(self, *, share: float = 0.5): ...
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package of the user's, which must not run."""
    folder = tmp_path / "signatures_of_mine"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text(
        "from .inner import Own, Inherits as Renamed\nraise RuntimeError('never imported')\n"
    )
    (folder / "inner" / "__init__.py").write_text(MINE.format(dots="."))
    (folder / "inner" / "parts.py").write_text(PARTS)
    (folder / "flat.py").write_text(MINE.format(dots=".inner."))
    monkeypatch.syspath_prepend(str(tmp_path))
    read_signature.cache_clear()
    return folder.name


def test_kinds_of_parameters(package: str) -> None:
    assert read_signature(f"{package}.flat.Own") == {
        "first": Parameter(Any, True),
        "second": Parameter(int, False),
        "tau": Parameter(parameters.Positive, True),
        "kind": Parameter(typing.Literal["a", "b"], False),
        "odd": Parameter(Any, True),
        OTHERS: Parameter(Any, False),
    }


def test_an_inherited_constructor_is_followed_across_modules(package: str) -> None:
    expected = {"share": Parameter(float, False)}
    for place in ("flat.Inherits", "inner.Inherits", "Renamed", "inner.parts.Other"):
        assert read_signature(f"{package}.{place}") == expected, place
    assert read_signature(f"{package}.Own") == read_signature(f"{package}.inner.Own") != {}
    assert "gamma" in signature(f"{package}.flat.Theirs")
    assert package not in sys.modules


def test_no_parameters_are_not_the_same_as_unknown_ones(package: str) -> None:
    cases: dict[str, Any] = {"Nothing": {}, "Empty": {}, "Foreign": None, "Generated": None, "Absent": None}
    for name, expected in cases.items():
        assert read_signature(f"{package}.flat.{name}") == expected, name


def test_optimizers_of_torch() -> None:
    for name in ("Adam", "AdamW", "SGD"):
        assert list(signature(f"torch.optim.{name}")) == [*inspect.signature(getattr(torch.optim, name)).parameters]


def test_what_may_exist() -> None:
    for target in ("l2d.methods.cross_entropy.Focal", "torch.optim.Adam", "json.JSONDecoder", "__main__.Mine"):
        assert may_exist(target), target
    wrong = (
        "l2d.methods.cross_entropy.Focall",
        "l2d.methods.Focal",
        "json.nothing.Here",
        "no_such_module.Mine",
        "Mine",
        "",
    )
    for target in wrong:
        assert not may_exist(target), target


def test_only_the_very_module_of_a_class_counts(package: str) -> None:
    assert find_class(f"{package}.inner.Own") is not None
    assert find_class(f"{package}.Own") is None
    for target in ("l2d.data.sets.prepared.np.save", "l2d.utils.files.write_text", "Own", "", "no_such.thing.Here"):
        assert find_class(target) is None
        assert read_signature(target) is None
    assert find_class("__main__.Mine") is None
    assert find_class("l2d.methods.cross_entropy.inner.Focal") is None  # a module has no modules in it


@pytest.mark.slow
def test_reading_imports_nothing() -> None:
    code = (
        "import sys; from l2d.config.signatures import read_signature\n"
        f"for target in {configured()}: read_signature(target)\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in ('torch', 'numpy') or"
        " name.startswith(('l2d.methods', 'l2d.networks', 'l2d.data', 'l2d.experts'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


SIGNATURE = {"tau": Parameter(parameters.Positive, True), "recipe": Parameter(Recipe, True)}


def test_arguments_are_checked() -> None:
    for given, said in (({"tau": 0}, "^tau=0: "), ({"zzz": 1.0}, "^zzz: .*tau, recipe")):
        with pytest.raises(ParameterError, match=said):
            check_arguments(given, SIGNATURE)
    check_arguments({"tau": 0.5, "recipe": {"epochs": 0}}, SIGNATURE)  # a recipe's keys are checked elsewhere
    check_arguments({"anything": 1}, {OTHERS: Parameter(Any, False)})


def test_a_source_that_was_changed_is_read_again_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a list may stand for a tuple, which no file can hold."""
    monkeypatch.syspath_prepend(tmp_path)
    source = "class Mine:\n    def __init__(self, *, {}: tuple[int, int]) -> None: ...\n"
    for name in ("size", "shape"):
        (tmp_path / "my_changing_module.py").write_text(source.format(name))
        signatures.forget_sources()
        signature = read_signature("my_changing_module.Mine")
        assert signature is not None
        assert [*signature] == [name]
        check_arguments({name: [1, 2]}, signature)
