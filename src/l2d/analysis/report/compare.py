"""The entries of the tables: each cell's label, its reference, and its means over seeds; and a finding for each block."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from l2d.analysis.report.averages import Losses, mean_metrics, mean_scores, paired_interval
from l2d.analysis.report.paper import BLOCK, PAPER, PaperNumber, paper_results, papers_recipe
from l2d.analysis.report.read import FinishedCell
from l2d.config.identity import apart
from l2d.utils.text import listed

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
NAMES = 5  # at most, where the summary lists methods: a search may have dozens of trials
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
    blocks: dict[tuple[str, ...], list[FinishedCell]] = defaultdict(list)
    for cell, own in conditions.items():
        differ = any(other.block == cell.block and said != own for other, said in conditions.items())
        suffix = f" ({own or 'evaluation=holdout'})" if differ or "latency_price" in own else ""
        blocks[(*cell.block[:3], f"{cell.block[3]}{suffix}")].append(cell)
    return blocks


def conditions_of(cell: FinishedCell) -> str:
    """The prices of a cell, and how it was evaluated if not by holdout."""
    given = {k: v for k, v in cell.settings.items() if k.startswith("cost.prices") or v != USUAL.get(k, v)}
    judged = {run.evaluation for run in cell.runs.values()} - {"holdout"}
    prices = [f"{key.removeprefix('cost.')}={value}" for key, value in given.items()]
    return " ".join([*prices, *(f"evaluation={one}" for one in judged)])


def is_papers_tdef(cell: FinishedCell) -> bool:
    """True if ρ is 1. With another ρ it is a control, or tuned."""
    rho = {key: value for key, value in cell.settings.items() if key.startswith("method.rho")}
    return cell.method == REFERENCE and cell.tuned is None and rho in ({}, {"method.rho": 1})


def reference_of(cell: FinishedCell, members: Sequence[FinishedCell]) -> FinishedCell | None:
    """The paper's tdef, else the best, of the cells that differ in the method (and what a search set) alone; None for itself."""
    varied = ("method.", *(text.split("=")[0] for text in (cell.tuned.chosen if cell.tuned else ())))
    rest = cell.settings_but(*varied)
    alike = [other for other in members if other.runs and other.settings_but(*varied) == rest]
    found = next(filter(is_papers_tdef, alike), None) or min(alike, key=mean_loss)
    return None if found is cell else found


def mean_loss(cell: FinishedCell) -> float:
    return statistics.fmean(run.deferral_loss for run in cell.runs.values())


def guard_acts(cells: Sequence[FinishedCell]) -> bool:
    """True if the guard changed decisions in any run. Then every method has a guarded loss."""
    return any(run.guarded.changes_decisions for cell in cells for run in cell.runs.values())


def summarise(cells: Sequence[FinishedCell], file: Path = PAPER) -> list[Entry]:
    """One entry per cell and per baseline of a block, in the order of the tables. file: the paper's numbers."""
    labels, entries, printed = method_labels(cells), list[Entry](), paper_results(file)
    wanted = [cell for cell in cells if cell.names[:5] in printed and not cell.tuned]
    papers = {cell: printed[cell.names[:5]] for cell in wanted if papers_recipe(cell.names[:5], cell.settings)}
    for block, members in cells_by_block(cells).items():
        place = dict(zip(BLOCK, block, strict=True))
        for cell in members:
            entries.append(place | {"label": labels[cell]} | router_entry(cell, members, labels, papers.get(cell)))
        entries += [place | entry for entry in baseline_entries(members, labels)]
    return entries


def baseline_entries(members: Sequence[FinishedCell], labels: Mapping[FinishedCell, str]) -> list[Entry]:
    """Those of the cell with the most seeds, if possible without cost.noise, which affects the best single expert. It is named if
    others of the same seeds differ: neighbours depend on the router's inputs, and so do the costs that a log estimates."""
    finished = [cell for cell in members if cell.runs]
    if not finished:
        return []
    most = max(finished, key=lambda cell: (not cell.settings.get("cost.noise"), len(cell.runs)))
    alike = [cell for cell in finished if cell.runs.keys() == most.runs.keys()]
    entries = []
    for name, title in BASELINES.items():
        scores, *others = [[getattr(run.baselines, name) for run in cell.runs.values()] for cell in [most, *alike]]
        if None not in scores:  # not all data have neighbours and categories
            of = f" (run of {labels[most]})" if any(other != scores for other in others) else ""
            entries.append({"label": f"{title}{of}", "kind": "baseline"} | mean_scores(scores))
    return entries


def router_entry(
    cell: FinishedCell, members: Sequence[FinishedCell], labels: Mapping[FinishedCell, str], paper: PaperNumber | None
) -> Entry:
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


@dataclass(frozen=True)
class Finding:
    """The summary of one block. The other methods are split by the 95 % interval of their paired difference from the best."""

    dataset: str
    setup: str
    experts: str
    cost: str
    best: str
    mean: float
    seeds: int
    single: float  # the deferral loss of the best single expert, on the same seeds
    pays: bool | None  # whether the best method beats that significantly; None: too few seeds
    beaten: tuple[str, ...]  # like the next two: the least loss first
    level: tuple[str, ...]  # not significantly worse than the best
    untold: tuple[str, ...]  # too few seeds in common
    guarded: float | None  # the best method's loss with the guard; None: the guard changed nothing in this block

    @property
    def texts(self) -> dict[str, str]:
        """The last columns of the summary. change: of the best single expert's loss."""
        change = f"{self.mean / self.single - 1:+z.0%}" if self.single else "0%"
        sure = {True: "", False: " (not significant)", None: " (too few seeds)"}[self.pays]
        guarded = "" if self.guarded is None else f"{self.guarded:.4f}"
        level = listed([*self.level, *(f"{name} (too few seeds)" for name in self.untold)], NAMES)
        beats = listed(self.beaten, NAMES)
        return {"change": change + sure, "with_the_guard": guarded, "beats": beats, "not_beaten": level}


def findings_of(cells: Sequence[FinishedCell]) -> list[Finding]:
    labels = method_labels(cells)
    blocks = {block: [cell for cell in members if cell.runs] for block, members in cells_by_block(cells).items()}
    return [finding_of(block, finished, labels) for block, finished in blocks.items() if finished]


def finding_of(block: Sequence[str], finished: Sequence[FinishedCell], labels: Mapping[FinishedCell, str]) -> Finding:
    ranked = sorted(finished, key=mean_loss)
    best = ranked[0]
    below = {labels[cell]: is_below(best.losses[0], cell.losses[0]) for cell in ranked if cell is not best}
    beaten, level, untold = (tuple(name for name in below if below[name] is kind) for kind in (True, False, None))
    guarded = statistics.fmean(run.guarded.deferral_loss for run in best.runs.values())
    return Finding(
        **dict(zip(BLOCK, block, strict=True)),
        best=labels[best],
        mean=mean_loss(best),
        seeds=len(best.runs),
        single=statistics.fmean(run.baselines.best_single.deferral_loss for run in best.runs.values()),
        pays=is_below(*best.losses),
        beaten=beaten,
        level=level,
        untold=untold,
        guarded=guarded if guard_acts(finished) else None,
    )


def is_below(ours: Losses, theirs: Losses) -> bool | None:
    """True if the 95 % interval of the paired difference lies below 0. None with fewer than three common seeds: two differences
    may be equal by chance, and the interval is then a point."""
    interval = paired_interval(ours, theirs)
    return None if interval is None or len(ours.keys() & theirs.keys()) < FEW else interval[2] < 0


def sentence(finding: Finding) -> str:
    parts = [f"best {finding.best} {finding.mean:.4f}", f"best single expert {finding.single:.4f}"]
    parts += [f"{name.replace('_', ' ')} {text}" for name, text in finding.texts.items() if text]
    return f"{finding.dataset} {finding.setup} {finding.experts} {finding.cost}: {'; '.join(parts)}"
