"""A run's result for a reader: the table under a finished run, and its picture. Made from metrics.json's content alone."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

ROWS = {
    "oracle": "oracle",
    "best_single": "best single expert",
    "random": "random expert",
    "majority": "always the majority expert",
}


def table(metrics: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: the router first, then what it is held against."""
    scores = {"router": metrics, **{title: metrics["baselines"][row] for row, title in ROWS.items()}}
    header = ["test split", "deferral loss", "error rate", "mean price"]
    header += [expert["name"] for expert in metrics["experts"]]
    rows = [
        [name, *(f"{row[key]:.4f}" for key in ("deferral_loss", "error_rate", "mean_price"))]
        + [f"{ratio:.1%}" for ratio in row["ratios"]]
        for name, row in scores.items()
    ]
    return header, rows


def format_table(metrics: Mapping[str, Any]) -> str:
    """The table as aligned text, with a warning beneath it when the router has collapsed."""
    lines = aligned(*table(metrics)).splitlines()
    lines.insert(3, lines[1])
    return "\n".join(lines + collapse_warning(metrics))


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
    k = metrics["collapsed_expert"]
    if k is None:
        return []
    ours, oracle = metrics["ratios"][k - 1], metrics["baselines"]["oracle"]["ratios"][k - 1]
    name = metrics["experts"][k - 1]["name"]
    return [
        f"WARNING: the router has collapsed: {name} gets {ours:.1%} of the inputs, the oracle would give it {oracle:.1%}."
        " Try decision=posterior, one ρ for all or a larger one (method.rho), more epochs, another method."
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
