"""The parameters of a class, read from its source: importing it would import torch before a wrong value is reported."""

import ast
import importlib.util
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from l2d.config.schema import Recipe
from l2d.utils import parameters
from l2d.utils.errors import ParameterError, unknown
from l2d.utils.own_modules import spec_of

OTHERS = "**"  # stands for the **others of a signature, which take any key
BUILTINS = {kind.__name__: kind for kind in (int, float, bool, str, list, dict, tuple)} | {"None": None}


class Parameter(NamedTuple):
    """kind: its annotation; Any if it cannot be read without importing more."""

    kind: Any
    required: bool


def find_class(target: str) -> ast.ClassDef | None:
    """The definition of a class, MODULE.CLASS; None if MODULE itself does not define it."""
    module, _, name = target.rpartition(".")
    return next((node for node in _tree(module).body if isinstance(node, ast.ClassDef) and node.name == name), None)


def may_exist(target: str) -> bool:
    """True if l2d defines it. For classes of others: if the module exists, which may create classes in any way."""
    module = target.rpartition(".")[0]
    if target.startswith("l2d."):
        return find_class(target) is not None
    return module in sys.modules or spec_of(module) is not None


@cache
def read_signature(target: str) -> Mapping[str, Parameter] | None:
    """The keyword arguments of a class's constructor, its own or an inherited one; None if they cannot be read. **others of a
    subclass are those of its base class, if that has any."""
    module, _, name = target.rpartition(".")
    definition = find_class(target)
    if definition is None:
        home = _home(module, name)
        return None if home == target else read_signature(home)
    own = dict[str, Parameter]()
    for node in definition.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            own = _parameters(node.args)
            if OTHERS not in own:
                return own
    if definition.decorator_list:  # a decorator may make a constructor
        return None
    names = [base.id if isinstance(base, ast.Name) else None for base in definition.bases]
    inherited = [None if base is None else read_signature(_home(module, base)) for base in names]
    found = next((found for found in inherited if found != {}), {})
    return {**found, **{name: one for name, one in own.items() if name != OTHERS}} if found else own or found


def forget_sources() -> None:
    """Read classes again: in a notebook, the user's own may have changed."""
    read_signature.cache_clear()
    _tree.cache_clear()


def _parameters(given: ast.arguments) -> dict[str, Parameter]:
    by_place = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(by_place) - len(given.defaults)) + list(given.defaults)
    pairs = [*zip(by_place[1:], defaults[1:], strict=True), *zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    found = {one.arg: Parameter(_kind(one.annotation), default is None) for one, default in pairs}
    return found | ({OTHERS: Parameter(Any, required=False)} if given.kwarg else {})


def check_arguments(arguments: Mapping[str, Any], signature: Mapping[str, Parameter]) -> None:
    for name, value in arguments.items():
        if name in signature:
            if signature[name].kind is not Recipe:  # a recipe's keys are checked one by one
                parameters.check_value(name, value, signature[name].kind)
        elif OTHERS not in signature:
            raise ParameterError(name, unknown("key", name, signature))


@cache
def _tree(module: str) -> ast.Module:
    spec = spec_of(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return ast.Module([], [])
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"), spec.origin)


def _home(module: str, name: str) -> str:
    """The full name, MODULE.NAME, of a name that a module imports or defines; also if it imports it for type checkers alone."""
    spec = spec_of(module)
    home = module if spec is not None and spec.submodule_search_locations is not None else module.rpartition(".")[0]
    for node in (node for node in ast.walk(_tree(module)) if isinstance(node, ast.ImportFrom)):
        for alias in (alias for alias in node.names if name == (alias.asname or alias.name)):
            origin = importlib.util.resolve_name("." * node.level + (node.module or ""), home)
            return f"{origin}.{alias.name}"
    return f"{module}.{name}"


def _kind(annotation: ast.expr | None) -> Any:
    if annotation is None or "tuple[" in ast.unparse(annotation):  # a file has lists, no tuples
        return Any
    try:
        return eval(ast.unparse(annotation), {"__builtins__": BUILTINS}, {**vars(parameters), "Recipe": Recipe})
    except (NameError, TypeError, AttributeError):
        return Any
