"""The summary of a report: the best method of each block, and which others it beats significantly."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from l2d.analysis.report.averages import paired_interval
from l2d.analysis.report.compare import cells_by_block, method_labels
from l2d.analysis.report.paper import BLOCK
from l2d.analysis.report.read import FinishedCell


@dataclass(frozen=True)
class Finding:
    """Of one block. The other methods are split by the 95 % interval of their paired difference from the best.

    Intervals are not corrected for multiple comparisons, nor for choosing the best on the same seeds.
    """

    dataset: str
    setup: str
    experts: str
    cost: str
    best: str
    mean: float
    seeds: int
    single: float  # the deferral loss of the best single expert, on the same seeds
    pays: bool | None  # whether the best method beats that significantly; None: fewer than two seeds
    beaten: tuple[str, ...]
    level: tuple[str, ...]  # not significantly worse than the best
    untold: tuple[str, ...]  # fewer than two seeds in common

    @property
    def gain(self) -> float:
        """The share of the best single expert's loss that routing saves."""
        return 1 - self.mean / self.single if self.single else 0.0


def findings_of(cells: Sequence[FinishedCell]) -> list[Finding]:
    labels = method_labels(cells)
    return [
        finding_of(block, finished, labels)
        for block, members in cells_by_block(cells).items()
        if (finished := [cell for cell in members if cell.runs])
    ]


def finding_of(block: Sequence[str], finished: Sequence[FinishedCell], labels: Mapping[FinishedCell, str]) -> Finding:
    losses = {cell: {seed: run.deferral_loss for seed, run in cell.runs.items()} for cell in finished}
    best = min(finished, key=lambda cell: statistics.fmean(losses[cell].values()))
    singles = {seed: run.baselines.best_single.deferral_loss for seed, run in best.runs.items()}
    verdicts = {labels[cell]: is_below(losses[best], losses[cell]) for cell in finished if cell is not best}
    beaten, level, untold = (
        tuple(label for label, verdict in verdicts.items() if verdict is kind) for kind in (True, False, None)
    )
    return Finding(
        **dict(zip(BLOCK, block, strict=True)),
        best=labels[best],
        mean=statistics.fmean(losses[best].values()),
        seeds=len(best.runs),
        single=statistics.fmean(singles.values()),
        pays=is_below(losses[best], singles),
        beaten=beaten,
        level=level,
        untold=untold,
    )


def is_below(ours: Mapping[int, float], theirs: Mapping[int, float]) -> bool | None:
    """Significantly: the 95 % interval of the paired difference lies below 0. None with fewer than two common seeds."""
    interval = paired_interval(ours, theirs)
    return None if interval is None else interval[2] < 0


def sentence(finding: Finding) -> str:
    """One line for a terminal."""
    parts = [
        f"best {finding.best} {finding.mean:.4f}",
        f"best single expert {finding.single:.4f} ({-finding.gain:+.0%})",
    ]
    for words, names in (
        ("beats", finding.beaten),
        ("level with", finding.level),
        ("too few seeds to compare with", finding.untold),
    ):
        parts += [f"{words} {', '.join(names)}"] if names else []
    return f"{finding.dataset} {finding.setup} {finding.experts} {finding.cost}: {'; '.join(parts)}"
