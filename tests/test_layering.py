"""Rooms by purpose, and imports that go down: a file imports only from its own room and from the rooms below it."""

import ast
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src"
PACKAGE = SOURCE / "l2d"
# Floors, the lowest first. A room imports from floors below its own, never from a room beside it.
FLOORS = [
    ["utils"],
    ["config"],
    ["core"],
    ["data"],
    ["lightning"],
    ["logs"],
    ["costs", "networks"],
    ["methods"],
    ["experts"],
    ["assembly"],
    ["runs"],
    ["training", "router"],
    ["analysis", "api", "large", "server"],
    ["tuning"],
    ["commands"],
]
ROOMS = [room for floor in FLOORS for room in floor]
TOP = {"__init__.py", "__main__.py", "functional.py", "train.py"}  # above all rooms
HEAVY = {"torch", "torchvision", "pytorch_lightning", "timm", "transformers"}
ADAPTER = "l2d.config.hydra_adapter"  # the one module that uses what Hydra, OmegaConf and torch do not publish
UNPUBLISHED_OF = ("hydra", "omegaconf", "torch")
KEYS = {"_target_"}  # of configs


def module(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def sources() -> dict[str, Path]:
    """{module: its file}, of l2d and of the plugin that Hydra finds."""
    return {module(file): file for file in sorted(SOURCE.rglob("*.py"))}


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(sources()[name].read_text(encoding="utf-8"))


@cache
def imports(name: str) -> list[tuple[str, str]]:
    """(module, name imported from it, or nothing) of each import in a module: also inside functions, and by import_module."""
    found: list[tuple[str, str]] = []
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Call) and called(node).endswith("import_module"):
            found += [(str(given.value), "") for given in node.args[:1] if isinstance(given, ast.Constant)]
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = name if sources()[name].name == "__init__.py" else name.rpartition(".")[0]
                base = ".".join([*package.split(".")[: 1 - node.level or None], *([base] if base else [])])
            found += [(base, alias.name) for alias in node.names]
    return found


def called(node: ast.Call) -> str:
    """The last part of the name of what is called."""
    return str(getattr(node.func, "attr", getattr(node.func, "id", "")))


@cache
def imported(name: str) -> frozenset[str]:
    """Our own modules that a module imports. `from l2d.data import arrays` is one of l2d.data.arrays."""
    found = {whole if (whole := f"{base}.{one}") in sources() else base for base, one in imports(name)}
    return frozenset(found & sources().keys() - {name})


def room(name: str) -> str:
    return name.split(".")[1] if name.count(".") else ""


def level(name: str) -> int:
    """The floor of a module's room. The package's own files and Hydra's plugin are above all rooms."""
    return next((floor for floor, rooms in enumerate(FLOORS) if room(name) in rooms), len(FLOORS))


def package(name: str) -> str:
    return name if sources()[name].name == "__init__.py" else name.rpartition(".")[0]


def test_nothing_but_rooms() -> None:
    here = [entry for entry in PACKAGE.iterdir() if entry.name not in ("__pycache__", "conf", "py.typed")]
    assert {entry.name for entry in here if entry.is_file()} == TOP
    assert {entry.name for entry in here if entry.is_dir() and any(entry.rglob("*.py"))} == set(ROOMS)


def test_each_folder_is_a_package() -> None:
    for file in sources().values():
        assert file.parent in (SOURCE, SOURCE / "hydra_plugins") or (file.parent / "__init__.py").is_file(), file


def test_imports_go_down() -> None:
    upward = [
        f"{name} imports {other}"
        for name in sources()
        if name.startswith("l2d.")
        for other in imported(name)
        if room(other) != room(name) and level(other) >= level(name)
    ]
    assert upward == []


def test_no_import_cycles() -> None:
    """Neither between packages nor between files, also by imports within functions and those for types."""
    graph: dict[str, set[str]] = defaultdict(set)
    for name in sources():
        graph[package(name) + "/"] |= {package(other) + "/" for other in imported(name)} - {package(name) + "/"}
        graph[name] |= {other for other in imported(name) if other != package(name)}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as cycle:
        pytest.fail(" imports ".join(reversed(cycle.args[1])))


def test_the_two_lowest_rooms_do_without_torch() -> None:
    """A wrong key or value is answered before torch is there, which takes seconds to import."""
    allowed = "l2d.core.out_of_memory"
    for name in sources():
        if room(name) in ("utils", "config") and name != allowed:
            assert not {base.split(".")[0] for base, _ in imports(name)} & HEAVY, name
            assert allowed not in imported(name), name


def test_private_api_is_used_in_one_module() -> None:
    assert ADAPTER in sources()
    found = {name: uses for name in sources() if name != ADAPTER and (uses := private_uses(name))}
    assert found == {}


def private_uses(name: str) -> list[str]:
    """Imports of private modules and names, `torch._private`, and `something._private` that is nothing of the module's own."""
    theirs = [(base, one) for base, one in imports(name) if base.split(".")[0] in UNPUBLISHED_OF]
    found = [f"{base}.{one}" for base, one in theirs if any(map(private, [*base.split("."), one]))]
    nodes = list(ast.walk(tree(name)))
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and private(node.attr) and node.attr not in own | KEYS:
            root, *_ = (chain := ast.unparse(node)).split(".")
            if root in UNPUBLISHED_OF or (root not in ("self", "cls") and not node.attr.endswith("_")):
                found.append(chain)
    return found


def private(name: str) -> bool:
    """os._exit and torch's operations on lists of tensors are documented, though their names begin with an underscore."""
    return name.startswith("_") and not name.endswith("__") and not name.startswith(("_foreach_", "_exit"))


def test_private_api_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail."""
    code = {
        "from hydra._internal.core_plugins.basic_sweeper import BasicSweeper": 1,
        "from omegaconf._utils import _get_value": 1,
        "import torch\ntorch._foreach_lerp_([], [], 0.5)": 0,
        "import torch\ntorch._dynamo.reset()": 1,
        "def f(node):\n    return node._is_none()": 1,
        "def f(cfg):\n    return cfg._target_, cfg.__class__": 0,
        "class A:\n    def __init__(self):\n        self._own = 1\n    def same(self, other):\n        return other._own": 0,
    }
    monkeypatch.setattr(f"{__name__}.imports", imports.__wrapped__)  # nothing is remembered
    for text, uses in code.items():
        monkeypatch.setattr(f"{__name__}.tree", lambda _, text=text: ast.parse(text))
        assert len(private_uses("l2d")) == uses, text


def test_only_two_modules_know_wandb() -> None:
    knowing = {name for name in sources() for base, one in imports(name) if "wandb" in f"{base}.{one}".lower()}
    assert knowing == {"l2d.commands.dashboard", "l2d.runs.tracking"}  # the first builds a workspace, the second logs


def test_only_pytorch_lightning() -> None:
    """`lightning` and `pytorch_lightning` side by side fail isinstance checks."""
    for name in sources():
        assert "lightning" not in {base.split(".")[0] for base, _ in imports(name)}, name
