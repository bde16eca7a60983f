"""Controls for a tuned MILD (tune.ablation=true)."""

import statistics
from collections.abc import Mapping
from typing import Any

from l2d.tuning.show import Trial
from l2d.tuning.strategies import Ask, rounded

ONE, COMPLEMENT = "tuned, one ρ for all", "complement rewards"
CONTROLS = ("uniform", "theory", ONE, f"tuned, {COMPLEMENT}", f"{ONE}, {COMPLEMENT}", "tdef")


def controls(config: Mapping[str, Any], winner: Trial) -> dict[str, Ask]:
    """The settings of each control: the paper's uniform and theory ρ, TDEF, and one part changed at a time. Complement rewards are
    TDEF's. One ρ for all, the mean of the tuned ρ, keeps its size but not its imbalance."""
    others = {key: value for key, value in winner.settings.items() if not key.startswith("method.rho")}
    total = config["method"]["rho"]["total"]
    rule = {**others, "method.rho.total": total, "method.rho.offset": 0.0, "method.rho.values": None}
    one = {**others, "method.rho.values": [rounded(statistics.fmean(winner.rho))] * len(winner.rho)}
    complement = {"method.rewards": "complement"}
    rows: list[dict[str, Any]] = [
        {**rule, "method.rho.rule": "uniform"},
        {**rule, "method.rho.rule": "theory"},
        one,
        {**winner.settings, **complement},
        {**one, **complement},
        {**others, **complement, "method.rho.values": [1.0] * len(winner.rho)},
    ]
    return {name: Ask(settings) for name, settings in zip(CONTROLS, rows, strict=True)}
