"""The files of a report: tables as Markdown and LaTeX (in the paper's layout), and one self-contained page (page.html)."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from l2d.analysis.report.averages import lower_hull
from l2d.analysis.report.findings import NAMES, Finding
from l2d.analysis.report.paper import BLOCK
from l2d.analysis.report.read import FinishedCell
from l2d.utils.text import listed

Row = Mapping[str, Any]  # an entry of compare.summarise
Titles = Mapping[str, Mapping[str, str]]  # by group and name: l2d.config.titles
PAGE = Path(__file__).with_name("page.html")
DIGITS = 8  # of the numbers in the page
COLUMNS = ["dataset", "setup", "method", "seeds", "deferral loss", "paper", "off by, std"]
COLUMNS += [
    "difference to {reference}, paired, 95 %",
    "difference to best single, paired, 95 %",
    "of the oracle's gap",
    "guarded",
]
COLUMNS += ["to each expert, %", "chosen on validation"]
ANY = "the method in brackets"  # the reference, where rows of a table have different ones
SUMMARY = [*BLOCK, "best method", "deferral loss", "best single expert", "change", "beats", "level with"]
WITH_GUARD = "with the guard"  # after the deferral loss, if a guard changed something
NOISE = (
    "A method beats another (significantly) if the 95 % interval of their paired difference over common seeds does not contain 0."
    " Otherwise the two are level. Intervals are not corrected for multiple comparisons, nor for choosing the best on these seeds."
)
TEX = str.maketrans({"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}"} | {sign: f"\\{sign}" for sign in "_%&#{}$"})


def markdown_findings(findings: Sequence[Finding], titles: Titles) -> str:
    """The summary, a row per block."""
    guards, place = any(one.guarded is not None for one in findings), SUMMARY.index("best single expert")
    head = [*SUMMARY[:place], *([WITH_GUARD] if guards else []), *SUMMARY[place:]]
    lines = ["### Summary", "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for one in findings:
        sure = {True: "", False: " (not significant)", None: " (too few seeds)"}[one.pays]
        cells = [titled(titles, group, getattr(one, group)) for group in BLOCK]
        cells += [f"**{one.best}**", f"{one.mean:.4f}", *([guard_cell(one)] if guards else []), f"{one.single:.4f}"]
        cells += [f"{one.change}{sure}", listed(one.beaten, NAMES), level_cell(one)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", NOISE, ""])


def guard_cell(one: Finding) -> str:
    """The best method's guarded loss, and how the guard changes the order of the methods."""
    if one.guarded is None:
        return ""
    return f"{one.guarded:.4f}" + (f" ({one.guard_words})" if one.guard_words else "")


def level_cell(one: Finding) -> str:
    """The methods that the best one does not beat significantly."""
    return listed([*one.level, *(f"{name} (too few seeds)" for name in one.untold)], NAMES)


def markdown_tables(entries: Sequence[Row], titles: Titles) -> str:
    """One table per kind of experts and cost, without columns that would be empty."""
    parts = []
    for (experts, cost), members in grouped(entries, "experts", "cost"):
        lines = [f"### {titled(titles, 'experts', experts)}, {titled(titles, 'cost', cost)}", ""]
        blocks = [block for _, block in grouped(members, "dataset", "setup")]
        references = {row["reference"] for row in members if row.get("against_reference")}
        reference = references.pop() if len(references) == 1 else ANY
        rows = [_markdown_cells(row, best_mean(block), reference, titles) for block in blocks for row in block]
        kept = [column for column in range(len(COLUMNS)) if any(row[column] for row in rows)]
        table = [[column.format(reference=reference) for column in COLUMNS], ["---"] * len(COLUMNS), *rows]
        lines += [f"| {' | '.join(row[column] for column in kept)} |" for row in table]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _markdown_cells(row: Row, best: float, reference: str, titles: Titles) -> list[str]:
    """reference: the one of the table's rows, or ANY."""
    router, known, loss = row["kind"] == "router", row.get("paper"), with_std(row["mean"], row.get("std"))
    off, against = row.get("off_by_std"), interval_text(row.get("against_reference"))
    shares = " / ".join(f"{100 * ratio:.1f}" for ratio in row.get("ratios", []))
    return [
        titled(titles, "dataset", row["dataset"]),
        row["setup"],
        row["label"] if router else f"*{row['label']}*",
        seeds_text(row),
        f"**{loss}**" if router and row["mean"] == best else loss,
        with_std(known["mean"], known["std"]) if known else "",
        "" if off is None else f"{off:+.1f}",
        f"{against} ({row['reference']})" if against and reference == ANY else against,
        interval_text(row.get("against_single")),
        "" if row.get("of_gap") is None else f"{row['of_gap']:.0%}",
        guarded_text(row),
        shares + (" (collapsed)" if row.get("collapsed") else ""),
        row.get("chosen", ""),
    ]


def latex_tables(entries: Sequence[Row], titles: Titles) -> str:
    """The paper's layout: method, setup, dataset, deferral loss, the share of each expert; the paper's own loss beside ours, and
    the guarded loss if a guard changed something."""
    parts = ["% needs \\usepackage{booktabs}"]
    routers = [row for row in entries if row["kind"] == "router"]
    for (experts, cost), members in grouped(routers, "experts", "cost"):
        p = max((len(row["ratios"]) for row in members if "ratios" in row), default=1)
        guards = any(row.get("guarded") for row in members)
        lines = _latex_head(f"{titled(titles, 'experts', experts)}, {titled(titles, 'cost', cost)}", p, guards)
        for _, block in grouped(members, "setup", "dataset"):
            best = best_mean(block)
            cells = [_latex_cells(row, best, i == 0, p, guards, titles) for i, row in enumerate(block)]
            lines += [r"    \midrule", *(f"    {' & '.join(row)} \\\\" for row in cells)]
        lines += [r"    \bottomrule", r"  \end{tabular}"]
        if any(row["few"] for row in members):
            lines.append(r"  \par\smallskip $^\dagger$ fewer seeds than wanted, or fewer than three")
        parts.append("\n".join([*lines, r"\end{table}"]))
    return "\n\n".join(parts) + "\n"


def _latex_head(caption: str, p: int, guards: bool) -> list[str]:
    names = ["Method", "Setup", "Dataset", "Deferral loss", "Paper", *(["Guarded"] if guards else [])]
    wide = len(names)
    return [
        r"\begin{table}[t]",
        rf"  \caption{{{caption.translate(TEX)}.}}",
        r"  \centering",
        rf"  \begin{{tabular}}{{{'l' * wide}{'r' * p}}}",
        r"    \toprule",
        rf"    {' & '.join(names)} & \multicolumn{{{p}}}{{c}}{{Ratio of expert deferral (\%)}} \\",
        rf"    \cmidrule{{{wide + 1}-{wide + p}}}",
        rf"    {'& ' * wide}{' & '.join(str(k + 1) for k in range(p))} \\",
    ]


def _latex_cells(row: Row, best: float, first: bool, p: int, guards: bool, titles: Titles) -> list[str]:
    """first: whether it is the first row of its setup and dataset, which are named once. guards: whether there is a column for
    the guarded loss."""
    known, loss = row["paper"], with_std(row["mean"], row.get("std"), r"$\pm$")
    ratios = [f"{100 * ratio:.2f}" for ratio in row.get("ratios", [])]
    guarded = row.get("guarded")
    safe = with_std(guarded["mean"], guarded["std"], r"$\pm$") if guarded else "--"
    return [
        row["label"].translate(TEX),
        f"({row['setup'].translate(TEX)})" if first else "",
        titled(titles, "dataset", row["dataset"]).translate(TEX) if first else "",
        (rf"\textbf{{{loss}}}" if row["mean"] == best else loss) + (r"$^\dagger$" if row["few"] else ""),
        with_std(known["mean"], known["std"], r"$\pm$") if known else "--",
        *([safe] if guards else []),
        *ratios,
        *["--"] * (p - len(ratios)),
    ]


def html_page(
    entries: Sequence[Row], findings: Sequence[Finding], cells: Sequence[FinishedCell], title: str, titles: Titles
) -> str:
    curves = {str(cell.folder): cell.learning_curve() for cell in cells}
    data = {"title": title, "runs": sum(len(cell.runs) for cell in cells), "noise": NOISE, "names": titles}
    data |= {
        "entries": [{**entry, "curve": curves.get(entry.get("folder", ""), [])} for entry in entries],
        "findings": [{**asdict(one), **summary_texts(one)} for one in findings],
        "hulls": hulls_by_block(entries),
    }
    rounded = json.loads(json.dumps(data, allow_nan=False), parse_float=lambda text: round(float(text), DIGITS))
    # A "<" could end the script element that the data stand in.
    text = json.dumps(rounded, separators=(",", ":")).replace("<", "\\u003c")
    return PAGE.read_text(encoding="utf-8").replace("__DATA__", text)


def summary_texts(one: Finding) -> dict[str, str]:
    """The texts of the page's summary, which are those of the Markdown."""
    texts = {"change": one.change, "with_guard": guard_cell(one), "beats": listed(one.beaten, NAMES)}
    return texts | {"level_with": level_cell(one)}


def hulls_by_block(entries: Sequence[Row]) -> dict[str, list[tuple[float, float]]]:
    """The hull of mixtures of single experts by block, as (price, error), from the first entry with the most seeds."""
    routers = [entry for entry in reversed(entries) if entry.get("experts_alone")]
    most = {"/".join(entry[key] for key in BLOCK): entry for entry in sorted(routers, key=lambda entry: entry["seeds"])}
    alone = {block: [(one["price"], one["error_rate"]) for one in row["experts_alone"]] for block, row in most.items()}
    return {block: lower_hull(points) for block, points in alone.items()}


def titled(titles: Titles, group: str, name: str) -> str:
    """The title of a name; the name itself if its file has no title."""
    return titles.get(group, {}).get(name, name)


def best_mean(block: Sequence[Row]) -> float:
    """The least deferral loss of the routers in a block; if there is none, NaN, which equals nothing."""
    return min((row["mean"] for row in block if row["kind"] == "router" and row["mean"] is not None), default=math.nan)


def with_std(mean: float | None, std: float | None, sign: str = "±") -> str:
    if mean is None:
        return "missing"
    return f"{mean:.4f} {sign} {std:.4f}" if std is not None else f"{mean:.4f}"


def interval_text(interval: Sequence[float] | None) -> str:
    return f"{interval[0]:+.4f} [{interval[1]:+.4f}, {interval[2]:+.4f}]" if interval else ""


def seeds_text(row: Row) -> str:
    """3, or 2/5 if more were wanted; marked if there are too few."""
    text = str(row["seeds"]) + (f"/{row['wanted']}" if row.get("wanted") not in (None, row["seeds"]) else "")
    return text + (" (few)" if row.get("few") else "")


def guarded_text(row: Row) -> str:
    """The guarded loss, and the number of seeds in which one expert got everything; empty if it changed no decisions."""
    if not (found := row.get("guarded")):
        return ""
    one = f" (in {found['constant']} of {row['seeds']} seeds the guard chose one expert)" if found["constant"] else ""
    return with_std(found["mean"], found["std"]) + one


def grouped(entries: Sequence[Row], *keys: str) -> Iterator[tuple[tuple[str, ...], list[Row]]]:
    key = itemgetter(*keys)
    return ((found, list(members)) for found, members in groupby(sorted(entries, key=key), key))
