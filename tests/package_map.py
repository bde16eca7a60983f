"""The map in CONTRIBUTING.md: every package and module of l2d with the first sentence of its docstring.

python -m tests.package_map    # writes it anew
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.test_layering import PACKAGE, ROOMS

FILE = Path(__file__).resolve().parent.parent / "CONTRIBUTING.md"
MARKED = re.compile(r"(?<=<!-- map -->\n).*?(?=\n<!-- /map -->)", re.DOTALL)


def package_map() -> str:
    lines = ["| where | what |", "|---|---|"]
    for file in in_order():
        path, what = file.relative_to(PACKAGE), first_sentence(file)
        lines.append(
            f"| **`{path.parent}/`** | **{what}** |" if path.name == "__init__.py" else f"| `{path}` | {what} |"
        )
    return "\n".join(lines)


def in_order() -> Iterator[Path]:
    """What lies at the top level, then the rooms from the highest down; of a package its own file first."""
    yield from sorted(file for file in PACKAGE.glob("*.py") if file.name != "__init__.py")
    for room in reversed(ROOMS):
        yield from sorted(
            (PACKAGE / room).rglob("*.py"), key=lambda file: (file.parent, file.name != "__init__.py", file)
        )


def first_sentence(file: Path) -> str:
    text = " ".join((ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split())
    found = re.match(r".*?(?<!et al)\.(?= |$)", text)
    if found is None:
        raise ValueError(f"{file}: its docstring has no sentence")
    return found[0].removesuffix(".").replace("|", "\\|")


if __name__ == "__main__":
    FILE.write_text(MARKED.sub(lambda _: package_map(), FILE.read_text(encoding="utf-8")), encoding="utf-8")
