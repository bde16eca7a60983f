"""The summary of a report: the best method of each block, and which others it beats significantly."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from l2d.analysis.report.averages import Losses, paired_interval
from l2d.analysis.report.compare import FEW, cells_by_block, guard_acts, mean_loss, method_labels
from l2d.analysis.report.paper import BLOCK
from l2d.analysis.report.read import FinishedCell
from l2d.utils.text import listed

NAMES = 5  # at most, where the summary lists methods: a search may have dozens of trials


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
    guard_words: str  # the best method with the guard, if it is another; else empty

    @property
    def change(self) -> str:
        """The change of the best single expert's loss, in percent; never -0%."""
        text = f"{self.mean / self.single - 1:+.0%}" if self.single else "0%"
        return "0%" if text[1:] == "0%" else text

    @property
    def texts(self) -> dict[str, str]:
        """The last columns of the summary."""
        sure = {True: "", False: " (not significant)", None: " (too few seeds)"}[self.pays]
        guarded = "" if self.guarded is None else f"{self.guarded:.4f}"
        return {
            "change": f"{self.change}{sure}",
            "with_the_guard": f"{guarded} ({self.guard_words})" if self.guard_words else guarded,
            "beats": listed(self.beaten, NAMES),
            "level_with": listed([*self.level, *(f"{name} (too few seeds)" for name in self.untold)], NAMES),
        }


def findings_of(cells: Sequence[FinishedCell]) -> list[Finding]:
    labels = method_labels(cells)
    return [
        finding_of(block, finished, labels)
        for block, members in cells_by_block(cells).items()
        if (finished := [cell for cell in members if cell.runs])
    ]


def finding_of(block: Sequence[str], finished: Sequence[FinishedCell], labels: Mapping[FinishedCell, str]) -> Finding:
    ranked = sorted(finished, key=mean_loss)
    best = ranked[0]
    verdicts = {labels[cell]: is_below(best.losses[0], cell.losses[0]) for cell in ranked if cell is not best}
    beaten, level, untold = (tuple(one for one in verdicts if verdicts[one] is kind) for kind in (True, False, None))
    guarded = {cell: statistics.fmean(run.guarded.deferral_loss for run in cell.runs.values()) for cell in ranked}
    safest = min(ranked, key=guarded.__getitem__)  # where the guard makes some equal, the first of them
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
        guarded=guarded[best] if guard_acts(finished) else None,
        guard_words="" if safest is best else f"{labels[safest]} is the best: {guarded[safest]:.4f}",
    )


def is_below(ours: Losses, theirs: Losses) -> bool | None:
    """True if the 95 % interval of the paired difference lies below 0. None with fewer than three common seeds: two differences
    may be equal by chance, and the interval is then a point."""
    interval = paired_interval(ours, theirs)
    return None if interval is None or len(ours.keys() & theirs.keys()) < FEW else interval[2] < 0


def sentence(finding: Finding) -> str:
    """One line for a terminal."""
    guarded = "" if finding.guarded is None else f" (guarded {finding.guarded:.4f})"
    parts = [
        f"best {finding.best} {finding.mean:.4f}{guarded}",
        *([f"with the guard, {finding.guard_words}"] if finding.guard_words else []),
        f"best single expert {finding.single:.4f} ({finding.change})",
    ]
    others = {"beats": finding.beaten, "level with": finding.level, "too few seeds to compare with": finding.untold}
    parts += [f"{words} {listed(names, NAMES)}" for words, names in others.items() if names]
    return f"{finding.dataset} {finding.setup} {finding.experts} {finding.cost}: {'; '.join(parts)}"
