"""Notes on a table: the use of each column, columns that look overlooked, and experts that changed over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from l2d.data.sets.outcomes import LATENCY, PROPENSITY, Expert, money_columns
from l2d.data.sets.table_columns import AFTERWARDS, Named, is_id
from l2d.data.sheet import Sheet
from l2d.utils.text import Z, counted, listed

if TYPE_CHECKING:
    from torch import Tensor


def note_columns(
    sheet: Sheet, experts: list[Expert], named: Named, roles: dict[str, str], features: list[str], reads_text: bool
) -> None:
    """Print the use of each column: one that leaks the answer is easily overlooked. reads_text: whether a router could."""
    inputs, prices = [*features, *named.texts], list(money_columns(sheet, experts).values())
    beside = [name for name in sheet.names if name.startswith((LATENCY, PROPENSITY))]
    paid, others = (list(dict.fromkeys(map(sheet.in_file, names))) for names in (prices, beside))
    rest = [name for name in sheet.names if name not in (*inputs, *roles, *prices, *beside, *sheet.written)]
    kinds = ", ".join(f"{expert.name} ({expert.outcome})" for expert in experts)
    use = f"{counted(len(sheet), 'row')}; experts: {kinds}; the router sees: {listed(inputs, 60)}"
    use += f"; not used: {listed(rest)}" if rest else ""
    use += f"; prices: {listed(paid)} (they count with cost=columns)" if paid else ""
    use += f"; beside the outcomes: {listed(others)}" if others else ""
    sheet.note(use)
    if named.texts or named.features is not None:
        return
    unused = [name for name in rest if not name.lower().startswith(AFTERWARDS)]
    if ids := [name for name in unused if is_id(name) and name.lower() != "id" and sheet.looks_numeric(name)]:
        sheet.note(f"the router does not see {listed(ids)}, by name an id; to use one, list it in dataset.features")
    if prose := next((name for name in unused if reads_text and sheet.is_prose(name)), None):
        sheet.note(f"the router does not see {prose}, which looks like text; read it with dataset.text={prose}")


def note_repeated_texts(sheet: Sheet, groups: Tensor) -> None:
    """groups: of equal texts."""
    if again := len(groups) - len(groups.unique()):
        sheet.note(f"{counted(again, 'row')} with the text of an earlier row, on the same side of the split")


def note_drift(sheet: Sheet, errors: Tensor, train: Tensor, test: Tensor, experts: list[Expert]) -> None:
    """Print how each expert's mean error changed from the training rows to the later test rows, where it was asked."""
    changes = []
    for k, expert in enumerate(experts):
        known = [part[~part.isnan()] for part in (errors[train, k], errors[test, k])]
        if min(map(len, known)) < 2:
            changes.append(f"{expert.name} unknown")
            continue
        before, after = (float(part.mean()) for part in known)
        error = sum(float(part.var()) / len(part) for part in known) ** 0.5
        changes.append(f"{expert.name} {before:.4f} to {after:.4f} ({after - before:+.4f} ± {Z * error:.4f})")
    rows = f"from the {len(train):,} earlier rows to the {len(test):,} later ones"
    sheet.note(f"mean error {rows}, ± 95 %: {', '.join(changes)}")
