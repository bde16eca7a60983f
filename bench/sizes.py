"""Disk space of the base installation and of each extra: python bench/sizes.py

Sums the files of the installed distributions that each needs, so it has to run where all extras are installed (`make install`).
Writes the table in docs/guide.md.
"""

from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from provenance import machine, versions
from records import DOCS, put


def needed(name: str, extras: frozenset[str] = frozenset()) -> set[str]:
    """The distributions that pip installs for name[extras], including itself, if they are installed here."""
    found: set[tuple[str, frozenset[str]]] = set()
    open_ends = [(canonicalize_name(name), extras)]
    while open_ends:
        one = open_ends.pop()
        if one in found:
            continue
        found.add(one)
        for text in distribution(one[0]).requires or []:
            wanted = Requirement(text)
            marker, chosen = wanted.marker, one[1] or {""}
            applies = marker is None or any(marker.evaluate({"extra": extra}) for extra in chosen)
            if applies and any(True for _ in Distribution.discover(name=wanted.name)):
                open_ends.append((canonicalize_name(wanted.name), frozenset(wanted.extras)))
    return {str(name) for name, _ in found}


def megabytes(names: set[str]) -> float:
    return sum(_size(distribution(name)) for name in names) / 1e6


def _size(one: Distribution) -> int:
    files = (Path(str(one.locate_file(file))) for file in one.files or [] if file.suffix != ".pyc")
    return sum(file.stat().st_size for file in files if file.is_file())


def main() -> None:
    base = needed("l2d")
    provided = distribution("l2d").metadata.get_all("Provides-Extra") or []
    lines = ["| | packages | MB |", "|---|---|---|", f"| `l2d` | {len(base)} | {megabytes(base):,.0f} |"]
    for extra in sorted(map(str, provided)):
        more = needed("l2d", frozenset({extra})) - base
        lines.append(f"| `l2d[{extra}]` | +{len(more)} | +{megabytes(more):,.0f} |")
    torch, rest = needed("torch"), base - needed("torch")
    where = f"Files on disk without bytecode, on {machine()}, {versions()}."
    note = f"torch with its CUDA packages is {megabytes(torch):,.0f} MB of the first line, the rest {megabytes(rest):,.0f} MB."
    lines += ["", f"{where} {note}"]
    put(DOCS / "guide.md", "sizes", "\n".join(lines))


if __name__ == "__main__":
    main()
