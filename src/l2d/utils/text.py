"""Plain text for a terminal."""

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

SHOWN = 12  # names or rows in a message
Z = 1.959964  # standard errors on each side of a 95 % interval


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table: the first column left-aligned, the others right-aligned, a line below the header."""
    lines = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [[cell.rjust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    shown = ["  ".join([line[0].ljust(widths[0]), *cells[1:]]) for line, cells in zip(lines, padded, strict=True)]
    return "\n".join([shown[0], "-" * len(shown[0]), *shown[1:]])


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head, *lines = [f"| {' | '.join(line)} |" for line in (header, *rows)]
    return "\n".join([head, "|---" * len(header) + "|", *lines])


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def given_columns(columns: Mapping[str, Any], taken: Collection[str]) -> dict[str, Any]:
    """Columns of a file under names that are not taken: expert becomes given_expert, or given_given_expert if there is one."""
    prefix, both = "given_", [name for name in columns if name in taken]
    while any(f"{prefix}{name}" in columns for name in both):
        prefix += "given_"
    return {f"{prefix}{name}" if name in taken else name: cells for name, cells in columns.items()}


def counted(number: int, noun: str) -> str:
    """1 row, 2,000 rows."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(items: Sequence[Any], shown: int = SHOWN) -> str:
    more = f" and {len(items) - shown:,} more" if len(items) > shown else ""
    return ", ".join(map(str, items[:shown])) + more


def six_digits(number: float | None) -> float | None:
    """As a person would write it: 0.36, not 0.36000001430511475. Routers compute in 32 bits, which have seven digits."""
    return None if number is None else float(f"{number:.6g}")


def own_version() -> str:
    """Of l2d."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and rarely asked for

    try:
        return version("l2d")
    except PackageNotFoundError:  # run from the source, not installed
        return "unknown"
