"""What the tables say: means over seeds, the paper's numbers, paired intervals, error and price. Plain numbers in and out."""

import csv
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from scipy import stats

from l2d.analysis.report.read import Cell
from l2d.runs.folder import apart, settings_of
from l2d.runs.summary import changed

REFERENCE = "tdef"  # methods are held against it, as in the paper
FEW = 3  # fewer seeds than this are marked
BASELINES = {
    "oracle": "oracle",
    "best_single": "best single expert",
    "random": "random expert",
    "majority": "majority expert",
}


def mean_std(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean, and the sample standard deviation where there are two values or more."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def paired_interval(ours: Mapping[int, float], theirs: Mapping[int, float]) -> tuple[float, float, float] | None:
    """Mean difference over the common seeds and its 95 % interval (t); None with fewer than two common seeds."""
    differences = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    if len(differences) < 2:
        return None
    mean, std = statistics.fmean(differences), statistics.stdev(differences)
    half = float(stats.t.ppf(0.975, len(differences) - 1)) * std / math.sqrt(len(differences))
    return mean, mean - half, mean + half


@cache
def paper() -> dict[tuple[str, str, str, str, str], dict[str, Any]]:
    """The paper's numbers by (dataset, setup, experts, cost, method). The first table to give a cell counts."""
    found: dict[tuple[str, str, str, str, str], dict[str, Any]] = {}
    with (Path(__file__).parent / "paper.csv").open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["mean"] and row["table"].isdigit():
                key = (row["dataset"], row["setup"], row["experts"], row["cost"], row["method"])
                ratios = [float(ratio) / 100 for ratio in row["ratios"].split()]
                found.setdefault(key, {"mean": float(row["mean"]), "std": float(row["std"]), "ratios": ratios})
    return found


def paper_rho(block: Sequence[str], method: str) -> dict[str, float] | None:
    """The paper's ablation of ρ: mean and std for (dataset, setup, experts, cost) and mild_uniform, mild_theory or mild_tuned."""
    with (Path(__file__).parent / "paper.csv").open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            names = (row["dataset"], row["setup"], row["experts"], row["cost"])
            if row["table"] == "rho" and names == tuple(block) and row["method"] == method:
                return {"mean": float(row["mean"]), "std": float(row["std"])}
    return None


def losses(cell: Cell) -> dict[int, float]:
    return {seed: float(run["deferral_loss"]) for seed, run in cell.runs.items()}


def mean_of(runs: Iterable[Mapping[str, Any]], key: str) -> float:
    return statistics.fmean(float(run[key]) for run in runs)


def mean_ratios(runs: Iterable[Mapping[str, Any]]) -> list[float]:
    return [statistics.fmean(column) for column in zip(*(run["ratios"] for run in runs), strict=True)]


def labels(cells: Sequence[Cell]) -> dict[Cell, str]:
    """The method's name, with what tells apart several variants of one method within a block."""
    by_method: dict[tuple[str, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        by_method[cell.names[:5]].append(cell)
    found: dict[Cell, str] = {}
    for group in by_method.values():
        if len(group) == 1:
            found[group[0]] = group[0].method
            continue
        for cell, said in zip(group, apart([settings(cell) for cell in group]), strict=True):
            found[cell] = f"{cell.method} ({said or cell.names[5]})"
    return found


def settings(cell: Cell) -> dict[str, Any]:
    return settings_of(cell.config())


def priced(known: Mapping[Cell, dict[str, Any]]) -> dict[Cell, str]:
    """The cost of each cell, with its prices where runs of one name have different ones: they are not to be compared."""
    prices = {
        cell: " ".join(
            f"{key.removeprefix('cost.')}={value}"
            for key, value in found.items()
            if key.startswith(("cost.prices", "cost.scale"))
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


def plain(found: Mapping[str, Any], method: str) -> bool:
    """Whether a method's ρ is the paper's: tdef has ρ = 1, mild one ρ per expert by the theory's rule."""
    if method == REFERENCE:
        told = any(key.startswith("method.rho") for key in found)  # a number, or the keys of a rule
        return not told or found.get("method.rho") == 1
    return method != "mild" or found.get("method.rho.rule", "theory") == "theory"


def as_in_the_paper(found: Mapping[str, Any], method: str) -> bool:
    """Whether the paper's number is for this variant: clean costs, listed prices, experts asked about rows they learned from."""
    clean = not found.get("cost.noise") and "cost.scale" not in found and found.get("experts.cross_fit", 1) == 1
    usual = "aux" not in found and "recipe.ema" not in found and found.get("sampling", "none") == "none"
    return clean and usual and plain(found, method)


def reference_of(cell: Cell, members: Sequence[Cell], known: Mapping[Cell, dict[str, Any]]) -> Cell | None:
    """The plain tdef that differs from a cell in the method alone."""

    def rest(one: Cell) -> dict[str, Any]:
        return {key: value for key, value in known[one].items() if not key.startswith("method.")}

    for other in members:
        same = other.method == REFERENCE and other.runs and other is not cell
        if same and plain(known[other], REFERENCE) and rest(other) == rest(cell):
            return other
    return None


def summarise(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """One entry per cell and per baseline of a block, in the order of the tables."""
    known = {cell: settings(cell) for cell in cells}
    blocks: dict[tuple[str, ...], list[Cell]] = defaultdict(list)
    for cell, cost in priced(known).items():
        blocks[(*cell.block[:3], cost)].append(cell)
    names = labels(cells)
    entries: list[dict[str, Any]] = []
    for block, members in blocks.items():
        place = dict(zip(("dataset", "setup", "experts", "cost"), block, strict=True))
        for cell in members:
            reference = reference_of(cell, members, known)
            entry = place | {"label": names[cell]} | _entry(cell, as_in_the_paper(known[cell], cell.method))
            if reference is not None and cell.runs:
                entry["against_reference"] = paired_interval(losses(cell), losses(reference))
            entries.append(entry)
        with_runs = [cell for cell in members if cell.runs]
        if with_runs:
            # with noise, the best single expert was chosen on noisy costs
            most = max(with_runs, key=lambda cell: (not known[cell].get("cost.noise"), len(cell.runs)))
            for key, title in BASELINES.items():
                rows = [run["baselines"][key] for run in most.runs.values()]
                entries.append(place | {"label": title, "kind": "baseline"} | _scores(rows))
    return entries


def _scores(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    mean, std = mean_std([float(row["deferral_loss"]) for row in rows])
    return {
        "mean": mean,
        "std": std,
        "error_rate": mean_of(rows, "error_rate"),
        "mean_price": mean_of(rows, "mean_price"),
        "ratios": mean_ratios(rows),
        "seeds": len(rows),
    }


def _entry(cell: Cell, as_in_paper: bool) -> dict[str, Any]:
    known = paper().get((*cell.block, cell.method)) if as_in_paper else None
    entry: dict[str, Any] = {
        "kind": "router",
        "method": cell.method,
        "variant": cell.names[5],
        "folder": str(cell.folder),
        "seeds": len(cell.runs),
        "wanted": len(cell.wanted) or None,
        "few": len(cell.runs) < max(FEW, len(cell.wanted)),
        "paper": known,
    }
    if not cell.runs:
        return entry | {"mean": None}
    runs = list(cell.runs.values())
    entry |= _scores(runs)
    entry["guarded"] = guarded(runs)
    entry["oracle_ratios"] = mean_ratios([run["baselines"]["oracle"] for run in runs])
    entry["collapsed"] = sum(run.get("collapsed_expert") is not None for run in runs)
    entry["confusion"] = [
        [statistics.fmean(column) for column in zip(*rows, strict=True)]
        for rows in zip(*(run["confusion"] for run in runs), strict=True)
    ]
    entry["prices"] = runs[0]["prices"]
    entry["experts_alone"] = mean_experts(runs)
    entry["calibration"] = mean_calibration(runs)
    if known:
        entry["off_by_std"] = (entry["mean"] - known["mean"]) / known["std"] if known["std"] else None
    return entry


def guarded(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Deferral loss with the guard, and in how many seeds it sent everything to one expert; None where it changed nothing."""
    told = [run["guarded"] for run in runs if run.get("guarded")]
    if len(told) < len(runs) or not any(changed(run) for run in runs):
        return None
    mean, std = mean_std([float(one["deferral_loss"]) for one in told])
    return {"mean": mean, "std": std, "constant": sum(one["constant"] is not None for one in told)}


def mean_experts(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, float]] | None:
    """Each expert's error and price on its own, mean over seeds; None where the runs do not say."""
    told = [run["experts"] for run in runs if run.get("experts")]
    if not told:
        return None
    return [{key: mean_of(column, key) for key in ("error_rate", "price")} for column in zip(*told, strict=True)]


def mean_calibration(runs: Sequence[Mapping[str, Any]], bins: int = 10) -> list[list[float]] | None:
    """The seeds' bins joined by their weight."""
    sums: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    told = [run["calibration"] for run in runs if run.get("calibration")]
    for rows in told:
        for weight, predicted, observed in rows:
            total = sums[min(int(predicted * bins), bins - 1)]
            total[0] += weight / len(told)
            total[1] += weight * predicted / len(told)
            total[2] += weight * observed / len(told)
    return [[w, p / w, o / w] for _, (w, p, o) in sorted(sums.items())] or None


def lower_hull(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of (price, error) points, those that no mixture of others beats: the lower left convex hull, by price."""
    hull: list[tuple[float, float]] = []
    for x, y in sorted(set(points)):
        if hull and y >= hull[-1][1]:
            continue  # dearer and no better
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-2][0]) >= (y - hull[-2][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((x, y))
    return hull
