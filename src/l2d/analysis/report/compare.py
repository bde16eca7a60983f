"""The entries of the tables: each cell's label, its reference, and its means over seeds."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from l2d.analysis.report.averages import mean_metrics, mean_scores, paired_interval
from l2d.analysis.report.paper import BLOCK, PAPER, PaperNumber, paper_results, papers_recipes
from l2d.analysis.report.read import FinishedCell
from l2d.config.identity import apart

REFERENCE = "tdef"  # methods are compared with it, as in the paper; without it, with the best of them
USUAL = {"cost.scale": 1, "cost.latency_price": 0}  # other values change what the prices are
FEW = 3  # fewer seeds than this are marked
BASELINES = {
    "oracle": "oracle",
    "best_single": "best single expert",
    "nearest_neighbours": "nearest neighbours",
    "category_table": "per-category table",
    "random": "random expert",
    "majority": "majority expert",
}
Entry = dict[str, Any]


def method_labels(cells: Sequence[FinishedCell]) -> dict[FinishedCell, str]:
    """The method's name; how a search tuned it; if a block has several variants of it, the settings in which they differ."""
    variants: dict[tuple[bool, tuple[str, ...]], list[FinishedCell]] = defaultdict(list)
    for cell in cells:
        variants[cell.tuned is None, cell.names[:5]].append(cell)
    labels = {}
    for group in variants.values():
        differences = apart([cell.settings for cell in group])
        unsaid = "default" if differences.count("") == 1 else None
        for cell, said in zip(group, differences, strict=True):
            words = [f"tuned, best of {cell.tuned.tried}"] if cell.tuned else []
            if len(group) > 1:
                words.append(said or (cell.tuned.search if cell.tuned else unsaid or cell.names[5]))
            labels[cell] = f"{cell.method} ({', '.join(words)})" if words else cell.method
    return labels


def cells_by_block(cells: Sequence[FinishedCell]) -> dict[tuple[str, ...], list[FinishedCell]]:
    """The cells that are compared with each other. Cells of one cost but different prices, or judged on different rows, are in
    different blocks: the difference becomes part of the cost's name. A price of latency is always named: it is no money."""
    conditions = {cell: conditions_of(cell) for cell in cells}
    different: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for cell in cells:
        different[cell.block].add(conditions[cell])
    blocks: dict[tuple[str, ...], list[FinishedCell]] = defaultdict(list)
    for cell in cells:
        named = len(different[cell.block]) > 1 or "latency_price" in conditions[cell]
        suffix = f" ({conditions[cell] or 'evaluation=holdout'})" if named else ""
        blocks[(*cell.block[:3], f"{cell.block[3]}{suffix}")].append(cell)
    return blocks


def conditions_of(cell: FinishedCell) -> str:
    """The prices of a cell, and how it was evaluated if not by holdout."""
    prices = [
        f"{key.removeprefix('cost.')}={value}"
        for key, value in cell.settings.items()
        if key.startswith("cost.prices") or value != USUAL.get(key, value)
    ]
    judged = {run.evaluation for run in cell.runs.values()} - {"holdout"}
    return " ".join([*prices, *(f"evaluation={one}" for one in judged)])


def is_papers_tdef(cell: FinishedCell) -> bool:
    """True if ρ is 1. With another ρ it is a control, or tuned."""
    rho = {key: value for key, value in cell.settings.items() if key.startswith("method.rho")}
    return cell.method == REFERENCE and cell.tuned is None and rho in ({}, {"method.rho": 1})


def reference_of(cell: FinishedCell, members: Sequence[FinishedCell]) -> FinishedCell | None:
    """The paper's tdef, or else the best, of the cells that differ from this one in the method alone (a tuned one also in what the
    search set). None for that cell itself."""
    varied = ("method.", *(text.split("=")[0] for text in (cell.tuned.chosen if cell.tuned else ())))
    rest = cell.settings_but(*varied)
    alike = [other for other in members if other.runs and other.settings_but(*varied) == rest]
    found = next(filter(is_papers_tdef, alike), None) or min(alike, key=mean_loss)
    return None if found is cell else found


def mean_loss(cell: FinishedCell) -> float:
    return statistics.fmean(run.deferral_loss for run in cell.runs.values())


def guard_acts(cells: Sequence[FinishedCell]) -> bool:
    """True if the guard changed decisions in any run. Then every method has a guarded loss, to compare them by it."""
    return any(run.guarded.changes_decisions for cell in cells for run in cell.runs.values())


def summarise(cells: Sequence[FinishedCell], file: Path = PAPER) -> list[Entry]:
    """One entry per cell and per baseline of a block, in the order of the tables. file: the paper's numbers."""
    labels, entries, printed = method_labels(cells), list[Entry](), paper_results(file)
    wanted = [cell for cell in cells if cell.names[:5] in printed and not cell.tuned]
    recipes = papers_recipes((cell.names[:5], cell.settings) for cell in wanted)
    papers = {cell: printed[cell.names[:5]] for cell, recipe in zip(wanted, recipes, strict=True) if recipe}
    for block, members in cells_by_block(cells).items():
        place = dict(zip(BLOCK, block, strict=True))
        entries += [place | {"label": labels[cell]} | router_entry(cell, members, labels, papers) for cell in members]
        entries += [place | entry for entry in baseline_entries(members, labels)]
    return entries


def baseline_entries(members: Sequence[FinishedCell], labels: Mapping[FinishedCell, str]) -> list[Entry]:
    """The baselines of the cell with the most seeds. It is named if others of the same seeds differ: neighbours depend on the
    router's inputs, and so do the costs that a log estimates. Cells without cost.noise take precedence: with it, the best single
    expert is chosen on noisy costs."""
    finished = [cell for cell in members if cell.runs]
    if not finished:
        return []
    most = max(finished, key=lambda cell: (not cell.settings.get("cost.noise"), len(cell.runs)))
    alike = [cell for cell in finished if cell.runs.keys() == most.runs.keys()]
    entries = []
    for name, title in BASELINES.items():
        scores = [getattr(run.baselines, name) for run in most.runs.values()]
        if None in scores:  # not all data have neighbours and categories
            continue
        others = [[getattr(run.baselines, name) for run in cell.runs.values()] for cell in alike]
        of = f" (run of {labels[most]})" if any(other != scores for other in others) else ""
        entries.append({"label": f"{title}{of}", "kind": "baseline"} | mean_scores(scores))
    return entries


def router_entry(
    cell: FinishedCell,
    members: Sequence[FinishedCell],
    labels: Mapping[FinishedCell, str],
    papers: Mapping[FinishedCell, PaperNumber],
) -> Entry:
    paper = papers.get(cell)
    seeds, wanted = len(cell.runs), len(cell.wanted)
    chosen = " ".join(text.removeprefix("method.") for text in cell.tuned.chosen) if cell.tuned else ""
    entry: Entry = {"kind": "router", "method": cell.method, "variant": cell.names[5], "folder": str(cell.folder)}
    entry |= {"seeds": seeds, "wanted": wanted or None, "few": seeds < max(FEW, wanted)}
    entry |= {"paper": {"mean": paper.mean, "std": paper.std} if paper else None, "chosen": chosen}
    if not cell.runs:
        return entry | {"mean": None}
    entry |= mean_metrics(list(cell.runs.values()))
    if not guard_acts(members):
        entry["guarded"] = None
    if paper and paper.std:
        entry["off_by_std"] = (entry["mean"] - paper.mean) / paper.std
    if reference := reference_of(cell, members):
        entry["reference"] = REFERENCE if is_papers_tdef(reference) else labels[reference]
        entry["against_reference"] = paired_interval(cell.losses[0], reference.losses[0])
    entry["against_single"] = paired_interval(*cell.losses)
    return entry
