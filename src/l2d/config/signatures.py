"""The parameters of a class, read off its source and not by importing it: importing a method or a network imports torch, which
takes seconds, and a misspelt value should be answered at once."""

import ast
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from l2d.utils import parameters
from l2d.utils.errors import ParameterError


@dataclass(frozen=True)
class Parameter:
    """kind: its annotation; Any where the annotation cannot be read without importing more."""

    kind: Any
    required: bool


def find_class(target: str) -> ast.ClassDef | None:
    """The definition of a class, MODULE.CLASS; None where that is no class of that very module."""
    module, _, name = target.rpartition(".")
    return next((node for node in _tree(module).body if isinstance(node, ast.ClassDef) and node.name == name), None)


@cache
def read_signature(target: str) -> Mapping[str, Parameter]:
    """The keyword arguments of a class's constructor, its own or an inherited one."""
    module, _, _ = target.rpartition(".")
    definition = find_class(target)
    if definition is None:
        return {}
    for node in definition.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            given = node.args
            defaults = [None] * (len(given.args) - len(given.defaults)) + list(given.defaults)
            pairs = [
                *zip(given.args[1:], defaults[1:], strict=True),
                *zip(given.kwonlyargs, given.kw_defaults, strict=True),
            ]
            return {one.arg: Parameter(_kind(one.annotation), default is None) for one, default in pairs}
    for base in definition.bases:
        if isinstance(base, ast.Name) and (found := read_signature(_home(module, base.id))):
            return found
    return {}


def check_arguments(arguments: Mapping[str, Any], signature: Mapping[str, Parameter]) -> None:
    """Refuse unknown arguments, and values that their annotations do not allow."""
    for name, value in arguments.items():
        if name not in signature:
            known = ", ".join(signature) or "none"
            raise ParameterError(name, f"unknown key; its parameters are {known}")
        parameters.check(name, value, signature[name].kind)


@cache
def _tree(module: str) -> ast.Module:
    spec = importlib.util.find_spec(module) if module else None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return ast.Module([], [])
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def _home(module: str, name: str) -> str:
    """Where a name that a module uses comes from."""
    for node in _tree(module).body:
        if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == name for alias in node.names):
            return f"{node.module}.{name}"
    return f"{module}.{name}"


def _kind(annotation: ast.expr | None) -> Any:
    if annotation is None:
        return Any
    try:
        return eval(ast.unparse(annotation), {"__builtins__": BUILTINS}, _Names())
    except (NameError, TypeError, AttributeError):
        return Any


BUILTINS = {kind.__name__: kind for kind in (int, float, bool, str, list, dict, tuple)} | {"None": None}


class _Names(dict[str, Any]):
    """Names of utils/parameters.py, looked up when they are asked for."""

    def __missing__(self, name: str) -> Any:
        if hasattr(parameters, name):
            return getattr(parameters, name)
        raise KeyError(name)
