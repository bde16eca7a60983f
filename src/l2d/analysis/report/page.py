"""One self-contained page: the data as JSON inside it, tables and plots drawn by the script in page.html."""

import json
from collections.abc import Sequence
from pathlib import Path

from l2d.analysis.report.averages import lower_hull
from l2d.analysis.report.paper import BLOCK
from l2d.analysis.report.read import FinishedCell
from l2d.analysis.report.tables import Row, Titles

TEMPLATE = Path(__file__).with_name("page.html")
DIGITS = 8


def html_page(entries: Sequence[Row], cells: Sequence[FinishedCell], title: str, titles: Titles) -> str:
    curves = {str(cell.folder): cell.learning_curve() for cell in cells}
    data = {
        "title": title,
        "runs": sum(len(cell.runs) for cell in cells),
        "entries": [{**entry, "curve": curves.get(entry.get("folder", ""), [])} for entry in entries],
        "hulls": hulls_by_block(entries),
        "names": titles,
    }
    rounded = json.loads(json.dumps(data, allow_nan=False), parse_float=lambda text: round(float(text), DIGITS))
    # a "<" could end the script element that the data stand in
    text = json.dumps(rounded, separators=(",", ":")).replace("<", "\\u003c")
    return TEMPLATE.read_text(encoding="utf-8").replace("__DATA__", text)


def hulls_by_block(entries: Sequence[Row]) -> dict[str, list[tuple[float, float]]]:
    """Per block: what mixtures of single experts reach, as (price, error), by the first entry with the most seeds."""
    routers = [entry for entry in reversed(entries) if entry.get("experts_alone")]
    most = {"/".join(entry[key] for key in BLOCK): entry for entry in sorted(routers, key=lambda entry: entry["seeds"])}
    return {
        block: lower_hull((expert["price"], expert["error_rate"]) for expert in entry["experts_alone"])
        for block, entry in most.items()
    }
