"""A name of the package means one thing."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
EACH_HAS_ONE = {"main"}  # every command's entry


def public_names(file: Path) -> set[str]:
    """Classes and functions at a module's top level, also below an `if` there."""
    found, nodes = set(), list(ast.parse(file.read_text(encoding="utf-8")).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.If | ast.Try):
            nodes += [*node.body, *node.orelse]
    return {name for name in found if not name.startswith("_")}


def test_no_two_things_of_one_name() -> None:
    where = defaultdict(list)
    for file in sorted(SOURCE.rglob("*.py")):
        for name in public_names(file) - EACH_HAS_ONE:
            where[name].append(str(file.relative_to(SOURCE)))
    assert {name: files for name, files in sorted(where.items()) if len(files) > 1} == {}
