"""The settings that a search tries, in order."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from l2d.config.composing import override_text
from l2d.utils.errors import L2DError, ParameterError

PAPER_OFFSETS = tuple(range(-5, 6))  # the paper's interval, in steps of 1
Settings = dict[str, Any]


class NothingToSearch(ParameterError):
    """The method has no ρ, and nothing else was named."""


def overrides_of(settings: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"{key}={override_text(value)}" for key, value in settings.items())


def own_grid(values: Mapping[str, Sequence[Any]]) -> list[Settings]:
    return different([dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())])


def rho_grid(rho: Any, shares: Sequence[float], offsets: Sequence[float] | None) -> list[Settings]:
    """rho: the method's own. shares: the experts' shares of ρ̄, which sum to 1."""
    tried = PAPER_OFFSETS if offsets is None else offsets
    found = [settings for offset in tried if (settings := rho_at(rho, shares, offset)) is not None]
    if not found:
        raise L2DError(f"tune.offsets={list(tried)}: none of them leaves every ρ positive")
    return different(found)


def rho_at(rho: Any, shares: Sequence[float], offset: float) -> Settings | None:
    """The settings for ρ_k = total·share_k + offset; None if some ρ is not positive. A single ρ is 1/p + offset: as many values as
    a rule with total=1 has, and the same mean."""
    if isinstance(rho, Mapping):
        total = float(rho["total"])
        if min(total * share + offset for share in shares) <= 0:
            return None
        settings = {"method.rho.total": total, "method.rho.offset": offset}
        return settings | ({} if rho["values"] is None else {"method.rho.values": None})
    value = float(f"{1 / len(shares) + offset:.4g}")  # for files and command lines
    return {"method.rho": value} if value > 0 else None


def different(settings: Sequence[Settings]) -> list[Settings]:
    return [one for place, one in enumerate(settings) if one not in settings[:place]]
