"""A run's result for a reader: the table under a finished run, and its picture. Made from metrics.json's content alone."""

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

ROWS = {
    "oracle": "oracle",
    "best_single": "best single expert",
    "random": "random expert",
    "majority": "always the majority expert",
}
WORTH = (1.5, 100)  # times the validation rows: a gain that takes fewer is a tie, one that takes more is none
FEW = 3  # categories shown of those where routing pays the most, and of those where it does the least


def table(metrics: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: the router first, then what it is held against."""
    scores = {"router": metrics, **{title: metrics["baselines"][row] for row, title in ROWS.items()}}
    if changed(metrics):
        scores = {"router": metrics, "router, guarded": metrics["guarded"], **scores}
    header = ["test split", "deferral loss", "error rate", "mean price"]
    header += [expert["name"] for expert in metrics["experts"]]
    rows = [
        [name, *(f"{row[key]:.4f}" for key in ("deferral_loss", "error_rate", "mean_price"))]
        + [f"{ratio:.1%}" for ratio in row["ratios"]]
        for name, row in scores.items()
    ]
    return header, rows


def format_table(metrics: Mapping[str, Any]) -> str:
    """The table as aligned text; beneath it which epoch's weights these are if not the last one's, a warning when the router has
    collapsed, what the guard did, what cost=extreme came to, and where routing pays most and least."""
    lines = aligned(*table(metrics)).splitlines()
    lines.insert(4 if changed(metrics) else 3, lines[1])
    for said in (epoch_line, collapse_warning, guard_line, extreme_line, category_lines):
        lines += said(metrics)
    return "\n".join(lines)


def epoch_line(metrics: Mapping[str, Any]) -> list[str]:
    kept, last = metrics.get("kept_epoch"), metrics.get("epochs")
    return (
        [] if kept in (None, last) else [f"checkpoint={metrics['checkpoint']}: the weights of epoch {kept} of {last}"]
    )


def changed(metrics: Mapping[str, Any]) -> bool:
    """Whether the guard decides otherwise than the router by itself."""
    guarded = metrics.get("guarded") or {}
    return guarded.get("constant") is not None or guarded.get("offsets") is not None


def guard_line(metrics: Mapping[str, Any]) -> list[str]:
    guarded = metrics.get("guarded")
    if guarded is None:  # a run of before there was a guard
        return []
    seen = guarded["validation"]
    error = seen["standard_error"]
    beaten = f"{seen['gain']:+.4f} ± {'unknown' if error is None else f'{error:.4f}'}"
    rows = metrics.get("rows") or {}
    over = f" over {rows['validation']:,} rows" if "validation" in rows else ""
    if not changed(metrics):
        return [f"guard: the router stands; on validation it beats always {seen['best_constant']} ({beaten} per input)"]
    if guarded["constant"] is not None:
        return [
            f"guard: on validation the router does not beat always {seen['best_constant']} by more than the noise ({beaten}"
            f" per input{over}, paired, one standard error): everything is sent to {guarded['constant']};"
            f" l2d route --raw asks the router all the same{rows_to_tell(rows, seen['gain'], error)}"
        ]
    shifts = zip((expert["name"] for expert in metrics["experts"]), guarded["offsets"], strict=True)
    offsets = ", ".join(f"{name} {offset:+.3g}" for name, offset in shifts)
    return [
        f"guard: each expert's score is shifted, as validation asks for ({offsets}); there, the router is then cheaper"
        f" than always {seen['best_constant']} by {beaten} per input; l2d route --raw leaves it out"
    ]


def rows_to_tell(rows: Mapping[str, int], gain: float, error: float | None) -> str:
    """From how many validation rows on a gain would be more than one standard error, which goes by the root of their number."""
    n = rows.get("validation", 0)
    if error is None or not gain > 0:
        return ""
    least, most = WORTH
    if not least * n < (needed := n * (error / gain) ** 2) <= most * n:
        return ""
    step = 10 ** (len(str(int(needed))) - 2) if needed >= 10 else 1
    about = math.ceil(needed / step) * step
    how = "validation_fraction" if about < n + rows.get("train", 0) else "more than there are"
    return f"; a gain of that size is more than the noise from about {about:,} rows on ({how})"


def extreme_line(metrics: Mapping[str, Any]) -> list[str]:
    found = metrics.get("extreme")
    if found is None:
        return []
    prices = ", ".join(f"{price:g}" for price in found["prices"])
    return [
        f"cost=extreme: prices {prices}; the oracle gives {found['expert']} {found['share_train']:.1%} of the training rows"
        f" (aimed at {found['target']:.0%}) and {found['share_test']:.1%} of the test rows"
    ]


def category_lines(metrics: Mapping[str, Any]) -> list[str]:
    """The categories by what the router gains on the best single expert, the most first; of many, the first and the last few."""
    found = metrics.get("by_category") or {}
    gains = {name: row["best_single"] - row["deferral_loss"] for name, row in found.items()}
    rows = []
    for name in sorted(found, key=lambda name: -gains[name]):
        losses = [f"{found[name][key]:.4f}" for key in ("deferral_loss", "best_single", "oracle")]
        rows.append([name, str(found[name]["rows"]), *losses, f"{gains[name]:+.4f}"])
    if len(rows) < 2:
        return []
    if len(rows) > 2 * FEW:
        rows[FEW:-FEW] = [[f"({len(rows) - 2 * FEW} others)", *[""] * 5]]
    text = aligned(["category", "rows", "router", "best single expert", "oracle", "gain"], rows)
    return ["", *(line.rstrip() for line in text.splitlines())]


def aligned(header: list[str], rows: list[list[str]]) -> str:
    """Columns under each other, the first to the left and the others to the right, with a line beneath the header."""
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
    lines = [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in [header, *rows]
    ]
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(lines)


def collapse_warning(metrics: Mapping[str, Any]) -> list[str]:
    """With what there is to try for this method. None where that is nothing of its own and the guard sends everything to the same
    expert, for the guard's line says so."""
    k = metrics["collapsed_expert"]
    if k is None:
        return []
    tries = []
    if metrics.get("decision") == "argmax" and "by_decision" in metrics:
        tries.append("decision=posterior")
    if "rho" in metrics.get("method_buffers", {}):
        tries.append("one ρ for all or a larger one (method.rho)")
    if not tries and (metrics.get("guarded") or {}).get("constant") == metrics["experts"][k - 1]["name"]:
        return []
    ours, oracle = metrics["ratios"][k - 1], metrics["baselines"]["oracle"]["ratios"][k - 1]
    name = metrics["experts"][k - 1]["name"]
    return [
        f"WARNING: the router has collapsed: {name} gets {ours:.1%} of the inputs, the oracle would give it {oracle:.1%}."
        f" Try {', '.join([*tries, 'more epochs', 'another method'])}."
    ]


def figure(metrics: Mapping[str, Any]) -> Figure:
    """Shares per expert beside the oracle's, and the router's choice against the oracle's."""
    p = len(metrics["ratios"])
    names = [expert["name"].removeprefix("expert ") for expert in metrics["experts"]]
    picture = Figure(figsize=(10, 4), layout="constrained")
    bars, grid = picture.subplots(1, 2)
    positions = range(p)
    for shift, label, ratios in (
        (-0.2, "router", metrics["ratios"]),
        (0.2, "oracle", metrics["baselines"]["oracle"]["ratios"]),
    ):
        bars.bar([i + shift for i in positions], [100 * ratio for ratio in ratios], width=0.4, label=label)
    bars.set_xticks(list(positions), names)
    bars.set(xlabel="expert", ylabel="inputs sent to it (%)", title=f"deferral loss {metrics['deferral_loss']:.4f}")
    bars.legend()
    counts = metrics["confusion"]
    shares = [[count / max(1, sum(row)) for count in row] for row in counts]
    grid.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for i, row in enumerate(counts):
        for j, count in enumerate(row):
            grid.text(j, i, str(count), ha="center", va="center", color="white" if shares[i][j] > 0.6 else "black")
    grid.set_xticks(list(positions), names)
    grid.set_yticks(list(positions), names)
    grid.set(xlabel="router's expert", ylabel="oracle's expert", title="test inputs")
    return picture
