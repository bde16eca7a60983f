"""Routing between real language models: from finished runs to a CSV, from there to tables of the documents.

python bench/llm.py collect RUNS_DIR --outcomes FILE   # adds finished runs of dataset=mmlu there to bench/results/llm.csv, with
                                                       # the current commit; and to llm_data.csv what needs no router
python bench/llm.py curves RUNS_DIR                    # error against price, to llm_curves.csv
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch

import records
from l2d.analysis.curve.measure import measure_group
from l2d.analysis.curve.trace import trace_curve
from l2d.analysis.report.averages import paired_interval
from l2d.assembly.assemble import Splits
from l2d.assembly.build import make_splits
from l2d.commands.curve import wanted_groups
from l2d.config import check, compose
from l2d.core.costs import paid
from l2d.methods.priced import mean_by_label
from records import Results, Row

RUNS = Results(
    "llm",
    "label router setup prices scale noise method checkpoint seed",
    "validation test guarded constant single oracle ratios n machine torch commit",
    compared="validation test guarded torch",
)
DATA = Results("llm_data", "label setup prices", "n subject_table strong_error oracle_error guessing_error")
KINDS = {
    "router": "mild_uniform, a run for each price",
    "cost_regression": "cost_regression, one run",
    "cascade": "confidence cascade, one run",
    "mixture": "random mixtures",
    "oracle": "oracle",
}
FIGURES = {"auc": "mean accuracy over the price", "price_to_reach": "price of 95 % of the strong model's accuracy"}
CURVES = Results("llm_curves", "setup figure", " ".join(KINDS))
LEVELS = ("0 0 0", "0.1 0.05 0", "0.3 0.15 0", "0.6 0.3 0", "1.2 0.6 0")
METHODS = ("tdef", "mild_uniform", "cwce", "cost_regression", "plugin", "label_regression")
TRIOS = {"llama": "llama-3-70b, llama-2-13b, llama-2-7b", "mixtral": "mixtral-8x22b, mixtral-8x7b-instruct, mistral-7b"}
COSTS = {
    ("0 0 0", "0"): "errors",
    ("1 0.6 0.1", "0"): "prices 1, 0.6, 0.1",
    ("1 0.6 0.1", "0.2"): "the same, noisy",
    ("0 1 0", "0"): "extreme prices",
}
THEIRS = ("tdef", "mild_uniform", "mild, theory ρ", "ce", "cwce", "ldam")
CELL = ("router", "prices", "noise", "setup")
CHOICES = 4  # of an MMLU question
ROUNDING = 1e-5  # of what the CSV keeps


def collected(runs_dir: Path) -> list[Row]:
    rows = []
    for _, config, metrics, timing in records.finished(runs_dir, "mmlu"):
        if not ours(config, metrics.capabilities.reads_text):
            continue
        scale = float(config["cost"].get("scale", 1.0))
        rows.append(
            records.row_of(config, metrics, timing)
            | {
                "label": config["dataset"]["label"],
                "router": "minilm, fine-tuned" if metrics.capabilities.reads_text else "minilm, frozen",
                "prices": " ".join(f"{price / scale if scale else 0.0:g}" for price in metrics.prices),
                "scale": f"{scale:g}",
                "noise": f"{float(config['cost']['noise']):g}",
                "method": variant(config["method"]),
                "checkpoint": config["checkpoint"],
                "single": f"{metrics.baselines.best_single.deferral_loss:.6f}",
                "oracle": f"{records.oracle_of(metrics).deferral_loss:.6f}",
            }
        )
    return rows


def ours(config: Mapping[str, Any], tuned: bool) -> bool:
    """True if a run of all questions differs only in the keys from the commands in the documents."""
    said = ["dataset=mmlu", "dataset.only=null", f"dataset.label={config['dataset']['label']}"]
    said += [f"setup={config['setup']['name']}", f"checkpoint={config['checkpoint']}"]
    return records.usual(config, [*said, f"router=minilm{'_tuned' * tuned}"], free=["cost", "method"])


def variant(method: Mapping[str, Any]) -> str:
    """The method's name; with the rule for ρ if that is theory, or if TDEF has one."""
    rho = method.get("rho")
    if isinstance(rho, dict) and (rho["rule"] == "theory" or method["name"] == "tdef"):
        return f"{method['name']}, {rho['rule']} ρ"
    return str(method["name"])


def facts(outcomes: Path, cells: Iterable[tuple[str, str, str]]) -> list[Row]:
    """Figures that need no router: the best model for each subject, chosen on training rows and scored on test rows; and the gain
    of the oracle over the strong model if the others only guessed."""
    rows = []
    for label, setup, prices in sorted(cells):
        data = splits(outcomes, label, setup)
        beta = torch.tensor([float(price) for price in prices.split()], dtype=torch.float64)
        train, test = data.train.answers.errors + beta, data.test.answers.errors + beta
        by_subject = f"{subject_table(data, train, test):.6f}" if label == "subject" else ""
        row = {"label": label, "setup": setup, "prices": prices, "n": str(len(test)), "subject_table": by_subject}
        rows.append(row | guessing(data.test.answers.errors))
    return rows


@cache
def splits(outcomes: Path, label: str, setup: str) -> Splits:
    words = ["dataset=mmlu", f"setup={setup}", f"dataset.path={outcomes}", "dataset.only=null", "router=mlp"]
    return make_splits(check(compose([*words, f"dataset.label={label}", "cost=error", "recipe=table"])))


def subject_table(data: Splits, train: torch.Tensor, test: torch.Tensor) -> float:
    """Test loss of the model with the least mean training cost per subject; means are shrunk to the overall mean by one row."""
    means = mean_by_label(train, data.train.labels, data.arrays.num_classes, 1.0)
    return float(paid(test, means.argmin(dim=1)[data.test.labels]).mean())


def guessing(errors: torch.Tensor) -> Row:
    """The error of the strong model (the first), the oracle's, and the oracle's if the others guessed where the first is wrong."""
    strong = float(errors[:, 0].mean())
    guessed = strong * (1 - 1 / CHOICES) ** (errors.shape[1] - 1)
    oracle = float(errors.amin(dim=1).mean())
    return {"strong_error": f"{strong:.6f}", "oracle_error": f"{oracle:.6f}", "guessing_error": f"{guessed:.6f}"}


def tally_table(rows: Sequence[Row]) -> str:
    """Over the ten cells, how often each method is worse or better than the best single model, and by how much."""
    kind = {"router": "minilm, frozen", "label": "subject", "noise": "0", "scale": "1"}
    used, lines = [row for row in rows if kind.items() <= row.items() and row["prices"] in LEVELS], []
    for checkpoint, method in product(("best", "best_loss"), METHODS):
        here = [row for row in used if (row["method"], row["checkpoint"]) == (method, checkpoint)]
        if here:
            lines.append([method if checkpoint == "best" else f"{method}, checkpoint={checkpoint}", *tally(here)])
    counted = ("worse in", "significantly", "better in", "significantly")
    head = ("method", "loss minus the best single model's, mean", *counted)
    return f"{records.markdown(head, lines)}\n\n{len(used)} runs; {records.made(used)}."


def tally(rows: Sequence[Row]) -> list[str]:
    by_cell = records.grouped(rows, lambda row: (row["setup"], row["prices"]))
    means, lows, highs = zip(*map(more_than_single, by_cell.values()), strict=True)
    worse = sum(mean > ROUNDING for mean in means), sum(low > 0 for low in lows)
    better = sum(mean < -ROUNDING for mean in means), sum(high < 0 for high in highs)
    return [f"{sum(means) / len(means):+.4f}", *map(str, (*worse, *better))]


def more_than_single(rows: Sequence[Row], loss: str = "test") -> tuple[float, float, float]:
    """Mean and 95 % interval over seeds."""
    found = paired_interval(*(records.by_seed(rows, name) for name in (loss, "single")))
    assert found is not None
    return found


def trios_table(rows: Sequence[Row]) -> str:
    """Each method beside the best single model, and the guarded method that is farthest above it."""
    used = [row for row in rows if (row["label"], row["scale"]) == ("answer", "1") and row["method"] in THEIRS]
    used = [row for row in used if (row["prices"], row["noise"]) in COSTS]
    cells, lines = records.grouped(used, lambda row: tuple(row[key] for key in CELL)), []
    for (encoder, prices, noise, setup), cell in sorted(cells.items()):
        by_method = records.grouped(cell, lambda row: row["method"])
        guarded = max(more_than_single(some, "guarded")[0] for some in by_method.values())
        figures = [above(by_method[method]) if method in by_method else "" for method in THEIRS]
        lines.append([setup, encoder, COSTS[prices, noise], *figures, f"{guarded:+.4f}"])
    head = ("trio", "encoder", "cost", *THEIRS, "most above, guarded")
    return f"{records.markdown(head, lines)}\n\n{len(used)} runs; {records.made(used)}."


def above(rows: Sequence[Row]) -> str:
    """Above the best single model; with a star if the interval excludes 0."""
    mean, low, high = more_than_single(rows)
    return f"{mean:+.4f}" if low <= 0 <= high else rf"{mean:+.4f} \*"


def gap_table(data: Sequence[Row]) -> str:
    lines = []
    for setup, names in TRIOS.items():
        row = next(row for row in data if row["setup"] == setup and row["label"] == "answer")
        strong, oracle, guessed = (float(row[key]) for key in ("strong_error", "oracle_error", "guessing_error"))
        figures = (strong, oracle, strong - oracle, strong - guessed)
        lines.append([names, f"{int(row['n']):,}", *(f"{figure:.4f}" for figure in figures)])
    head = ("trio", "test questions", "strong model's error", "oracle's error", "gap", "gap if the others only guessed")
    return records.markdown(head, lines)


def curves(runs_dir: Path) -> list[Row]:
    rows = []
    for group in wanted_groups(runs_dir, {"dataset": "mmlu", "method": "mild_uniform"}):
        summary = trace_curve(group, measure_group(group)).summary
        for figure in FIGURES:
            found = {kind: summary[figure].get(kind) for kind in KINDS}
            shown = {kind: "never" if one is None else f"{one:.4f}" for kind, one in found.items()}
            rows.append({"setup": group.names[1], "figure": figure, **shown})
    return rows


def curves_table(rows: Sequence[Row]) -> str:
    lines = [[row["setup"], FIGURES[row["figure"]], *(row[kind] for kind in KINDS)] for row in rows]
    return records.markdown(("trio", "", *KINDS.values()), lines)


if __name__ == "__main__":
    options = records.given_paths(__doc__, "runs_dir", "--outcomes", what=("collect", "curves"))
    if options.what == "curves":
        CURVES.write(curves(options.runs_dir))
    else:
        RUNS.add(collected(options.runs_dir))
        DATA.write(facts(options.outcomes, {(row["label"], row["setup"], row["prices"]) for row in RUNS.read()}))
