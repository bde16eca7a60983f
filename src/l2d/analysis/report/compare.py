"""What the tables say of each cell: how it is called, what it is compared with, and its means over seeds."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from l2d.analysis.report.averages import mean_metrics, mean_scores, paired_interval
from l2d.analysis.report.paper import BLOCK, paper_results
from l2d.analysis.report.read import FinishedCell
from l2d.config.identity import apart, settings_of

REFERENCE = "tdef"  # methods are compared with it, as in the paper
FEW = 3  # fewer seeds than this are marked
BASELINES = {
    "oracle": "oracle",
    "best_single": "best single expert",
    "random": "random expert",
    "majority": "majority expert",
}
Known = Mapping[FinishedCell, Mapping[str, Any]]  # the settings of each cell, flat
Entry = dict[str, Any]


def settings_by_cell(cells: Iterable[FinishedCell]) -> dict[FinishedCell, dict[str, Any]]:
    return {cell: settings_of(cell.config()) for cell in cells}


def method_labels(known: Known) -> dict[FinishedCell, str]:
    """The method's name, with what tells apart several variants of one method within a block."""
    by_method: dict[tuple[str, ...], list[FinishedCell]] = defaultdict(list)
    for cell in known:
        by_method[cell.names[:5]].append(cell)
    found: dict[FinishedCell, str] = {}
    for group in by_method.values():
        if len(group) == 1:
            found[group[0]] = group[0].method
            continue
        for cell, said in zip(group, apart([known[cell] for cell in group]), strict=True):
            found[cell] = f"{cell.method} ({said or cell.names[5]})"
    return found


def cost_labels(known: Known) -> dict[FinishedCell, str]:
    """The cost of each cell, with its prices where runs of one name have different ones: those are not compared."""
    prices = {
        cell: " ".join(
            f"{key.removeprefix('cost.')}={value}"
            for key, value in found.items()
            if key.startswith("cost.prices") or (key == "cost.scale" and value != 1)
        )
        for cell, found in known.items()
    }
    schemes: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for cell, scheme in prices.items():
        schemes[cell.block].add(scheme)
    return {
        cell: cell.block[3] + (f" ({scheme})" if len(schemes[cell.block]) > 1 else "")
        for cell, scheme in prices.items()
    }


def has_papers_rho(found: Mapping[str, Any], method: str) -> bool:
    """Whether a method's ρ is the paper's: tdef has ρ = 1, mild one ρ per expert by the theory's rule."""
    if method == REFERENCE:
        told = any(key.startswith("method.rho") for key in found)  # a number, or the keys of a rule
        return not told or found.get("method.rho") == 1
    return method != "mild" or found.get("method.rho.rule", "theory") == "theory"


def as_in_the_paper(found: Mapping[str, Any], method: str) -> bool:
    """Whether the paper's number is for this variant: clean costs, listed prices, experts asked about rows they learned from."""
    clean = not found.get("cost.noise") and found.get("cost.scale", 1) == 1 and found.get("experts.cross_fit", 1) == 1
    plain = all(found.get(key, "none") == "none" for key in ("aux", "sampling")) and not found.get("recipe.ema")
    return clean and plain and has_papers_rho(found, method)


def reference_of(cell: FinishedCell, members: Sequence[FinishedCell], known: Known) -> FinishedCell | None:
    """The paper's tdef that differs from a cell in the method alone."""

    def rest(one: FinishedCell) -> dict[str, Any]:
        return {key: value for key, value in known[one].items() if not key.startswith("method.")}

    for other in members:
        same = other.method == REFERENCE and other.runs and other is not cell
        if same and has_papers_rho(known[other], REFERENCE) and rest(other) == rest(cell):
            return other
    return None


def summarise(cells: Sequence[FinishedCell]) -> list[Entry]:
    """One entry per cell and per baseline of a block, in the order of the tables."""
    known = settings_by_cell(cells)
    names = method_labels(known)
    blocks: dict[tuple[str, ...], list[FinishedCell]] = defaultdict(list)
    for cell, cost in cost_labels(known).items():
        blocks[(*cell.block[:3], cost)].append(cell)
    entries: list[Entry] = []
    for block, members in blocks.items():
        place = dict(zip(BLOCK, block, strict=True))
        entries += [place | {"label": names[cell]} | router_entry(cell, members, known) for cell in members]
        entries += [place | entry for entry in baseline_entries(members, known)]
    return entries


def baseline_entries(members: Sequence[FinishedCell], known: Known) -> list[Entry]:
    """Of the cell with the most seeds. With cost.noise the best single expert is chosen on noisy costs, so a cell without comes
    first, whatever its seeds."""
    with_runs = [cell for cell in members if cell.runs]
    if not with_runs:
        return []
    most = max(with_runs, key=lambda cell: (not known[cell].get("cost.noise"), len(cell.runs)))
    return [
        {"label": title, "kind": "baseline"} | mean_scores([getattr(run.baselines, name) for run in most.runs.values()])
        for name, title in BASELINES.items()
    ]


def router_entry(cell: FinishedCell, members: Sequence[FinishedCell], known: Known) -> Entry:
    paper = paper_results().get((*cell.block, cell.method)) if as_in_the_paper(known[cell], cell.method) else None
    entry: Entry = {
        "kind": "router",
        "method": cell.method,
        "variant": cell.names[5],
        "folder": str(cell.folder),
        "seeds": len(cell.runs),
        "wanted": len(cell.wanted) or None,
        "few": len(cell.runs) < max(FEW, len(cell.wanted)),
        "paper": paper,
    }
    if not cell.runs:
        return entry | {"mean": None}
    entry |= mean_metrics(list(cell.runs.values()))
    if paper:
        entry["off_by_std"] = (entry["mean"] - paper["mean"]) / paper["std"] if paper["std"] else None
    if (reference := reference_of(cell, members, known)) is not None:
        entry["against_reference"] = paired_interval(losses_by_seed(cell), losses_by_seed(reference))
    return entry


def losses_by_seed(cell: FinishedCell) -> dict[int, float]:
    return {seed: run.deferral_loss for seed, run in cell.runs.items()}
