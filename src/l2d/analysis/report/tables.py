"""The files of a report: tables as Markdown and LaTeX, and one self-contained page (page.html)."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from l2d.analysis.report.compare import Finding
from l2d.analysis.report.paper import BLOCK
from l2d.analysis.report.read import FinishedCell
from l2d.utils.text import markdown

Row = Mapping[str, Any]  # an entry of compare.summarise
Titles = Mapping[str, Mapping[str, str]]  # by group and name: l2d.config.titles
PAGE = Path(__file__).with_name("page.html")
DIGITS = 8  # of the numbers in the page
ANY = "the method in brackets"  # the reference, where rows of a table have different ones
NOISE = (
    "A method beats another (significantly) if the 95 % interval of their paired difference over common seeds does not contain 0."
    " Otherwise the two are level. Intervals are not corrected for multiple comparisons, nor for choosing the best on these seeds."
)
LATEX = ("method", "setup", "dataset", "seeds", "deferral loss", "paper", "guarded", "to each expert, %")
TEX = str.maketrans(
    {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}", "±": r"$\pm$"} | {sign: f"\\{sign}" for sign in "_%&#{}$"}
)


def markdown_findings(findings: Sequence[Finding], titles: Titles) -> str:
    rows = []
    for one in findings:
        cells = {group: titled(titles, group, getattr(one, group)) for group in BLOCK}
        cells |= {"best method": f"**{one.best}**", "deferral loss": f"{one.mean:.4f}"}
        cells |= {"best single expert": f"{one.single:.4f}"}
        rows.append(cells | {name.replace("_", " "): text for name, text in one.texts.items()})
    return f"### Summary\n\n{markdown(*without_empty(rows))}\n\n{NOISE}\n"


def without_empty(rows: Sequence[Mapping[str, str]]) -> tuple[list[str], list[list[str]]]:
    """The names of the columns that are not empty in all rows, and their cells."""
    kept = [name for name in rows[0] if any(row[name] for row in rows)]
    return kept, [[row[name] for name in kept] for row in rows]


def markdown_tables(entries: Sequence[Row], titles: Titles) -> str:
    tables = (f"### {title}\n\n{markdown(*without_empty(rows))}\n" for title, rows in tables_of(entries, titles))
    return "\n".join(tables)


def tables_of(entries: Sequence[Row], titles: Titles) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """One table per kind of experts and cost: its title and its rows, in Markdown."""
    for (experts, cost), members in grouped(entries, "experts", "cost"):
        blocks = [block for _, block in grouped(members, "dataset", "setup")]
        references = {row["reference"] for row in members if row.get("against_reference")}
        reference = references.pop() if len(references) == 1 else ANY
        rows = [_markdown_cells(row, block, reference, titles) for block in blocks for row in block]
        yield f"{titled(titles, 'experts', experts)}, {titled(titles, 'cost', cost)}", rows


def _markdown_cells(row: Row, block: Sequence[Row], reference: str, titles: Titles) -> dict[str, str]:
    """reference: the one of the table's rows, or ANY."""
    router, known, loss = row["kind"] == "router", row.get("paper"), with_std(row["mean"], row.get("std"))
    least = min((one["mean"] for one in block if one["kind"] == "router" and one["mean"] is not None), default=None)
    off, against = row.get("off_by_std"), interval_text(row.get("against_reference"))
    shares = " / ".join(f"{100 * ratio:.1f}" for ratio in row.get("ratios", []))
    wanted = "" if row.get("wanted") in (None, row["seeds"]) else f"/{row['wanted']}"
    named = f"{against} ({row['reference']})" if against and reference == ANY else against
    guarded = row.get("guarded")  # none if the guard changed no decisions
    in_some = f" (in {guarded['constant']} of {row['seeds']} seeds the guard chose one expert)" if guarded else ""
    alone = in_some if guarded and guarded["constant"] else ""
    return {
        "dataset": titled(titles, "dataset", row["dataset"]),
        "setup": row["setup"],
        "method": row["label"] if router else f"*{row['label']}*",
        "seeds": f"{row['seeds']}{wanted}{' (few)' if row.get('few') else ''}",
        "deferral loss": f"**{loss}**" if router and least is not None and row["mean"] == least else loss,
        "paper": with_std(known["mean"], known["std"]) if known else "",
        "off by, std": "" if off is None else f"{off:+.1f}",
        f"difference to {reference}, paired, 95 %": named,
        "difference to best single, paired, 95 %": interval_text(row.get("against_single")),
        "of the oracle's gap": "" if row.get("of_gap") is None else f"{row['of_gap']:.0%}",
        "guarded": f"{with_std(guarded['mean'], guarded['std'])}{alone}" if guarded else "",
        "to each expert, %": shares + (" (collapsed)" if row.get("collapsed") else ""),
        "chosen on validation": row.get("chosen", ""),
    }


def latex_tables(entries: Sequence[Row], titles: Titles) -> str:
    """The paper's columns of the same tables, without the baselines."""
    parts = ["% needs \\usepackage{booktabs}"]
    for title, rows in tables_of([row for row in entries if row["kind"] == "router"], titles):
        names, cells = without_empty([{name: row[name] for name in LATEX} for row in rows])
        head, *lines = [f"    {' & '.join(map(_latex, line))} \\\\" for line in (names, *cells)]
        begin = [r"\begin{table}[t]", rf"  \caption{{{_latex(title)}.}}", r"  \centering"]
        begin += [rf"  \begin{{tabular}}{{{'l' * len(names)}}}", r"    \toprule", head, r"    \midrule"]
        parts.append("\n".join([*begin, *lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]))
    return "\n\n".join(parts) + "\n"


def _latex(cell: str) -> str:
    return re.sub(r"\*\*(.+)\*\*", r"\\textbf{\1}", cell.translate(TEX))


def html_page(
    entries: Sequence[Row], findings: Sequence[Finding], cells: Sequence[FinishedCell], title: str, titles: Titles
) -> str:
    curves = {str(cell.folder): cell.learning_curve() for cell in cells}
    data = {"title": title, "runs": sum(len(cell.runs) for cell in cells), "noise": NOISE, "names": titles}
    data |= {
        "entries": [{**entry, "curve": curves.get(entry.get("folder", ""), [])} for entry in entries],
        "findings": [{**asdict(one), **one.texts} for one in findings],
    }
    rounded = json.loads(json.dumps(data, allow_nan=False), parse_float=lambda text: round(float(text), DIGITS))
    # A "<" could end the script element that the data stand in.
    text = json.dumps(rounded, separators=(",", ":")).replace("<", "\\u003c")
    return PAGE.read_text(encoding="utf-8").replace("__DATA__", text)


def titled(titles: Titles, group: str, name: str) -> str:
    """The title of a name; the name itself if its file has no title."""
    return titles.get(group, {}).get(name, name)


def with_std(mean: float | None, std: float | None) -> str:
    if mean is None:
        return "missing"
    return f"{mean:.4f} ± {std:.4f}" if std is not None else f"{mean:.4f}"


def interval_text(interval: Sequence[float] | None) -> str:
    return f"{interval[0]:+.4f} [{interval[1]:+.4f}, {interval[2]:+.4f}]" if interval else ""


def grouped(entries: Sequence[Row], *keys: str) -> Iterator[tuple[tuple[str, ...], list[Row]]]:
    key = itemgetter(*keys)
    return ((found, list(members)) for found, members in groupby(sorted(entries, key=key), key))
