"""The tables as Markdown and as LaTeX (booktabs, in the paper's layout)."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

DATASETS = {
    "digits": "Digits",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "cifar100n": "CIFAR-100N",
    "svhn": "SVHN",
    "tiny_imagenet": "Tiny ImageNet",
    "mmlu": "MMLU",
}
EXPERTS = {
    "synthetic": "Synthetic (simulated) experts",
    "trained": "Trained experts",
    "human_trained": "People and trained experts",
    "human_synthetic": "People and synthetic (simulated) experts",
    "llm": "Language models",
    "table": "Recorded outcomes",
}
COSTS = {"error": "error", "error_plus_cost": "error + cost"}
Entry = Mapping[str, Any]


def value(mean: float | None, std: float | None, sign: str = "±") -> str:
    if mean is None:
        return "missing"
    return f"{mean:.4f} {sign} {std:.4f}" if std is not None else f"{mean:.4f}"


def seeds(entry: Entry) -> str:
    """3, or 2/5 where more were wanted; marked where there are too few to say much."""
    text = str(entry["seeds"]) + (f"/{entry['wanted']}" if entry.get("wanted") not in (None, entry["seeds"]) else "")
    return text + (" (few)" if entry.get("few") else "")


def percent(ratios: Sequence[float] | None) -> str:
    return " / ".join(f"{100 * ratio:.1f}" for ratio in ratios) if ratios else ""


def against(entry: Entry) -> str:
    interval = entry.get("against_reference")
    return f"{interval[0]:+.4f} [{interval[1]:+.4f}, {interval[2]:+.4f}]" if interval else ""


def held(entry: Entry) -> str:
    """With the guard: the loss, and in how many seeds one expert got everything; empty where it changed nothing."""
    found = entry.get("guarded")
    if not found:
        return ""
    one = f" (one expert in {found['constant']})" if found["constant"] else ""
    return value(found["mean"], found["std"]) + one


def grouped(entries: Sequence[Entry], *keys: str) -> Iterator[tuple[tuple[str, ...], list[Entry]]]:
    def key(entry: Entry) -> tuple[str, ...]:
        return tuple(str(entry[name]) for name in keys)

    for found, members in groupby(sorted(entries, key=key), key):
        yield found, list(members)


def markdown(entries: Sequence[Entry]) -> str:
    """One table per kind of experts and cost."""
    parts = []
    head = ["dataset", "setup", "method", "seeds", "deferral loss", "paper", "off by, std", "less tdef, paired, 95 %"]
    head += [*(["guarded"] if any(map(held, entries)) else []), "to each expert, %"]
    for (experts, cost), members in grouped(entries, "experts", "cost"):
        lines = [f"### {EXPERTS.get(experts, experts)}, {COSTS.get(cost, cost)}", ""]
        lines += [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
        for (dataset, setup), block in grouped(members, "dataset", "setup"):
            best = min(
                (entry["mean"] for entry in block if entry["kind"] == "router" and entry["mean"] is not None),
                default=None,
            )
            for entry in block:
                known = entry.get("paper")
                loss = value(entry["mean"], entry.get("std"))
                cells = [
                    DATASETS.get(dataset, dataset),
                    setup,
                    entry["label"] if entry["kind"] == "router" else f"*{entry['label']}*",
                    seeds(entry),
                    f"**{loss}**" if entry["kind"] == "router" and entry["mean"] == best and best is not None else loss,
                    value(known["mean"], known["std"]) if known else "",
                    f"{entry['off_by_std']:+.1f}" if entry.get("off_by_std") is not None else "",
                    against(entry),
                    *([held(entry)] if "guarded" in head else []),
                    percent(entry.get("ratios")) + (" (collapsed)" if entry.get("collapsed") else ""),
                ]
                lines.append(f"| {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


TEX = {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}", **{sign: f"\\{sign}" for sign in "_%&#{}$"}}


def escape(text: str) -> str:
    return "".join(TEX.get(sign, sign) for sign in text)


def latex(entries: Sequence[Entry]) -> str:
    """The paper's layout: method, setup, dataset, deferral loss, the share of each expert; the paper's own loss beside ours."""
    parts = ["% needs \\usepackage{booktabs}"]
    for (experts, cost), members in grouped(entries, "experts", "cost"):
        shown = [entry for entry in members if entry["kind"] == "router"]
        p = max((len(entry["ratios"]) for entry in shown if entry.get("ratios")), default=1)
        numbers = " & ".join(str(k + 1) for k in range(p))
        lines = [
            r"\begin{table}[t]",
            rf"  \caption{{{escape(EXPERTS.get(experts, experts))}, {escape(COSTS.get(cost, cost))}.}}",
            r"  \centering",
            rf"  \begin{{tabular}}{{lllll{'r' * p}}}",
            r"    \toprule",
            rf"    Method & Setup & Dataset & Deferral loss & Paper & \multicolumn{{{p}}}{{c}}{{Ratio of expert deferral (\%)}} \\",
            rf"    \cmidrule{{6-{5 + p}}}",
            rf"    & & & & & {numbers} \\",
        ]
        for (setup, dataset), block in grouped(shown, "setup", "dataset"):
            lines.append(r"    \midrule")
            best = min((entry["mean"] for entry in block if entry["mean"] is not None), default=None)
            for i, entry in enumerate(block):
                known = entry.get("paper")
                loss = value(entry["mean"], entry.get("std"), r"$\pm$")
                ratios = [f"{100 * ratio:.2f}" for ratio in entry.get("ratios") or []]
                cells = [
                    escape(entry["label"]),
                    f"({escape(setup)})" if i == 0 else "",
                    escape(DATASETS.get(dataset, dataset)) if i == 0 else "",
                    (rf"\textbf{{{loss}}}" if best is not None and entry["mean"] == best else loss)
                    + (r"$^\dagger$" if entry.get("few") else ""),
                    value(known["mean"], known["std"], r"$\pm$") if known else "--",
                    *(ratios + ["--"] * (p - len(ratios))),
                ]
                lines.append(f"    {' & '.join(cells)} \\\\")
        lines += [r"    \bottomrule", r"  \end{tabular}"]
        if any(entry.get("few") for entry in shown):
            lines.append(r"  \par\smallskip $^\dagger$ fewer seeds than wanted, or than three")
        lines.append(r"\end{table}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"
