"""Imports go one way: a file imports only from what stands before it in this list."""

import ast
from pathlib import Path

import l2d

PACKAGE = Path(l2d.__file__).parent
ORDER = [
    *("utils", "config", "core", "data", "learning", "networks", "methods", "experts", "routing", "runs", "serving", "training"),
    *("analysis", "tuning", "commands", "train", "__main__"),
]


def part(module: str) -> str:
    return module.split(".")[1] if module.count(".") else ""


def imports(file: Path) -> set[str]:
    """Parts of the package that a file imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "l2d":
            found |= {part(node.module)} if "." in node.module else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {part(alias.name) for alias in node.names if alias.name.startswith("l2d.")}
    return found


def sources() -> list[Path]:
    return [file for file in sorted(PACKAGE.rglob("*.py")) if file.name != "__init__.py"]


def test_one_direction() -> None:
    for file in sources():
        own = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        assert own in ORDER, f"{file} has no place in the order"
        for other in imports(file):
            assert ORDER.index(other) <= ORDER.index(own), f"{file} imports l2d.{other}, which stands after it"


def test_only_two_files_know_wandb() -> None:
    knowing = [file.name for file in sources() if "wandb" in file.read_text(encoding="utf-8")]
    assert knowing == ["dashboard.py", "tracking.py"]  # the first builds a workspace, the second logs


def test_only_pytorch_lightning() -> None:
    """`lightning` and `pytorch_lightning` side by side fail isinstance checks."""
    for file in sources():
        assert "import lightning" not in file.read_text(encoding="utf-8")
