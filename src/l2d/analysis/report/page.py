"""One self-contained page: the data as JSON inside it, tables and plots drawn by the script in page.html."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from l2d.analysis.report.averages import lower_hull
from l2d.analysis.report.paper import BLOCK
from l2d.analysis.report.read import FinishedCell
from l2d.analysis.report.tables import Row, Titles

TEMPLATE = Path(__file__).with_name("page.html")
DIGITS = 8


def html_page(entries: Sequence[Row], cells: Sequence[FinishedCell], title: str, titles: Titles) -> str:
    curves = {str(cell.folder): cell.learning_curve() for cell in cells}
    shown = [dict(entry) | {"curve": curves.get(str(entry.get("folder")), [])} for entry in entries]
    data = {
        "title": title,
        "runs": sum(len(cell.runs) for cell in cells),
        "entries": shown,
        "hulls": hulls_by_block(entries),
        "names": titles,
    }
    # a "<" could end the script element that the data stand in
    text = json.dumps(_rounded(data), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return TEMPLATE.read_text(encoding="utf-8").replace("__DATA__", text)


def hulls_by_block(entries: Sequence[Row]) -> dict[str, list[tuple[float, float]]]:
    """Per block: what mixtures of single experts reach, as (price, error)."""
    most: dict[str, Row] = {}
    for entry in entries:
        if entry.get("experts_alone") and entry["seeds"] > most.get(_block(entry), {"seeds": 0})["seeds"]:
            most[_block(entry)] = entry
    return {
        block: lower_hull((expert["price"], expert["error_rate"]) for expert in entry["experts_alone"])
        for block, entry in most.items()
    }


def _block(entry: Row) -> str:
    return "/".join(str(entry[key]) for key in BLOCK)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
