"""Disk space of the base installation and of each extra: python bench/sizes.py

Sums the files of the installed distributions that each needs, so it has to run where all extras are installed (`make install`).
Writes the table in docs/guide.md.
"""

from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from records import DOCS, machine, markdown, put, versions


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
    listed = (file for name in names for file in distribution(name).files or [] if file.suffix != ".pyc")
    paths = (Path(str(file.locate())) for file in listed)
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


if __name__ == "__main__":
    base = needed("l2d")
    provided = distribution("l2d").metadata.get_all("Provides-Extra") or []
    rows = [["`l2d`", str(len(base)), f"{megabytes(base):,.0f}"]]
    for extra in sorted(map(str, provided)):
        more = needed("l2d", frozenset({extra})) - base
        rows.append([f"`l2d[{extra}]`", f"+{len(more)}", f"+{megabytes(more):,.0f}"])
    torch, rest = needed("torch"), base - needed("torch")
    where = f"Files on disk without bytecode, on {machine()}, {versions()}."
    note = f"torch with its CUDA packages is {megabytes(torch):,.0f} MB of the first line, the rest {megabytes(rest):,.0f} MB."
    put(DOCS / "guide.md", "sizes", f"{markdown(('', 'packages', 'MB'), rows)}\n\n{where} {note}")
