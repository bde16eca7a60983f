"""Public benchmarks of routers between language models: runs on their own splits, into bench/results/benchmarks.csv.

python bench/benchmarks.py routerdc TABLE RUNS_DIR    # TABLE: what bench/import_benchmark.py routerdc made of RouterDC's files
python bench/benchmarks.py llmrouter TABLE RUNS_DIR   # TABLE: of LLMRouter's preprocessed files, the same way
python bench/benchmarks.py mmlu TABLE RUNS_DIR        # TABLE: outcomes of the two trios, as for dataset=mmlu

Finished runs are not trained again. DATA_DIR says where embeddings are kept (default: data).
"""

import math
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold
from torch import Tensor

from l2d.core.costs import cheapest, paid
from l2d.core.decisions import argmax_last
from l2d.core.guard import fit_guard, paired
from l2d.data.cells import missing
from l2d.data.sheet import read_sheet, write_sheet
from l2d.utils.text import Z
from logs import Questions
from records import Results, Row, about, given_paths, grouped, markdown, mean_of, origin, trained

FIGURES = "n tasks validation loss guarded single oracle gain error guarded_gain guarded_error fell_back by_task"
RESULTS = Results("benchmarks", "benchmark prices method seed", f"{FIGURES} machine versions commit command")
FOLDS, SEEDS = 5, (0, 1, 2)
LLAMA_PRICES = ("0.3 0.15 0", "0.4 0.2 0", "0 0 0", "0.1 0.05 0", "0.6 0.3 0")
TRIOS = {"llama": LLAMA_PRICES, "mixtral": ("0.2 0.1 0", "0.3 0.15 0")}
SIMPLE: dict[str, list[str]] = {
    **{name: [] for name in ("category_table", "knn", "clusters", "linear", "linear_plugin", "mix")},
    "mix, by label": ["method=mix", "method.by_label=true"],
}
# Others' accuracies on RouterDC's test rows, in percent, mean over its five tasks.
PUBLISHED = {
    "RouterDC (Chen et al. 2024; our reading of its Figure 2: MMLU 61, GSM8K 70, CMMLU 52, ARC-C 59, HumanEval 51)": "about 58.5"
}
LEARNED = ("plugin", "cost_regression", "label_regression")
PLAIN = "200 neighbours and subjects, scikit-learn"
NEIGHBOURS, PRIOR = 200, 5  # the prior counts as so many questions
MMLU_METHODS = ("category_table", "knn", "linear_plugin", "mix, by label", "plugin")


@dataclass(frozen=True)
class Judged:
    """Held-out rows. costs [n, p]; the router's decisions, by itself and guarded; whether the guard fell back on every row; the
    rows' tasks. validation: the mean loss on validation rows, if there are other rows than these."""

    costs: Tensor
    decisions: Tensor
    guarded: Tensor
    fell_back: bool
    tasks: Sequence[str]
    validation: float | None = None


def method_words(name: str) -> list[str]:
    """The overrides of a method. Learned ones keep the epoch with the best estimates on validation rows."""
    return SIMPLE.get(name) or [f"method={name}", *(["checkpoint=best_loss"] if name in LEARNED else [])]


def seen_words(name: str, text: str, topic: str) -> list[str]:
    """The input of the router: the topic itself, which cannot be a label then, or the text."""
    if name == "category_table":
        return [f"dataset.text={topic}", f"dataset.category={topic}", "router=mlp"]
    return [f"dataset.text={text}", f"dataset.category={topic}", f"dataset.label={topic}", "router=minilm"]


def where_words(runs_dir: Path) -> list[str]:
    return [f"runs_dir={runs_dir}", f"data_dir={os.environ.get('DATA_DIR', 'data')}", "progress=false"]


def on_its_split(benchmark: str, table: Path, runs_dir: Path) -> Iterator[Row]:
    """A benchmark that says which rows are for testing. Without tasks, all rows are one task and no label can be learned."""
    table = complete(table, runs_dir)
    sheet = read_sheet(table, ["split"])
    test = [split == "test" for split in sheet.words("split")]
    topic = "task" if "task" in sheet.columns else ""
    named = sheet.words("task") if topic else ["all"] * len(test)
    tasks = [task for task, kept in zip(named, test, strict=True) if kept]
    needs_topic = ("category_table", "linear_plugin", "mix, by label", "plugin", "label_regression")
    methods = [method for method in (*SIMPLE, *LEARNED) if topic or method not in needs_topic]
    for method, seed in product(methods, SEEDS):
        words = ["dataset=table", f"dataset.name={benchmark}", f"dataset.path={table}", "dataset.split=split"]
        words += seen_words(method, "prompt", topic) if topic else ["dataset.text=prompt", "router=mlp"]
        words += [*method_words(method), f"seed={seed}"]
        yield figures(judged_run([*words, *where_words(runs_dir)], tasks), benchmark, "", method, seed, words)


def complete(table: Path, runs_dir: Path) -> Path:
    """A table of the questions that all models were asked: others would make it a log, which is judged by estimates."""
    sheet = read_sheet(table)
    some = np.logical_or.reduce([missing(x) for name, x in sheet.columns.items() if name.startswith("correct_")])
    if not some.any():
        return table
    found = runs_dir / f"{table.stem}-complete.parquet"
    write_sheet(found, {name: cells.to_pylist() for name, cells in sheet.take(~some).columns.items()})
    return found


def judged_run(words: Sequence[str], tasks: Sequence[str]) -> Judged:
    run, metrics = trained(words)
    with np.load(run.path / "test.npz") as saved:
        costs, decisions, guarded = (torch.from_numpy(saved[name]) for name in ("costs", "decisions", "guarded"))
    fell_back, validation = metrics.guarded.constant is not None, metrics.validation.deferral_loss
    return Judged(costs.double(), decisions, guarded, fell_back, tasks, validation)


def on_mmlu(table: Path, runs_dir: Path) -> Iterator[Row]:
    """Two trios by cross-validation, with three sets of folds. One run is judged at all prices, since these methods learn errors
    alone."""
    for seed, (setup, levels), method in product(SEEDS, TRIOS.items(), (PLAIN, *MMLU_METHODS)):
        words = ["dataset=mmlu", f"dataset.path={table}", "dataset.only=null", f"setup={setup}"]
        words += [*seen_words(method, "prompt", "subject"), "evaluation=cross_validate", "cost=error_plus_cost"]
        words += [f"cost.prices=[{','.join(levels[0].split())}]", *method_words(method), f"seed={seed}"]
        if method == PLAIN:
            words, (errors, expected) = [], plain_estimates(table, setup, seed)
        else:
            run, _ = trained([*words, *where_words(runs_dir)])
            with np.load(run.path / "test.npz") as saved:
                errors = torch.from_numpy(saved["costs"] - saved["prices"]).double()
                expected = torch.from_numpy(saved["expected_errors"]).double()
        for prices in levels:
            beta = torch.tensor([float(price) for price in prices.split()], dtype=torch.float64)
            found = at_prices(errors, expected, beta)
            yield figures(found, f"mmlu, {setup}", prices, method, seed, words)


def plain_estimates(table: Path, setup: str, seed: int) -> tuple[Tensor, Tensor]:
    """Errors and out-of-fold estimates [n, 3] without l2d's methods: the mean of 200 neighbours and of a classifier of the subject
    times a table of errors by subject. Nothing is tuned."""
    questions = Questions(table, os.environ.get("DATA_DIR", "data"), setup)
    points, errors = torch.nn.functional.normalize(questions.inputs, dim=1), questions.errors
    subjects = np.unique(questions.subjects, return_inverse=True)[1]
    texts = np.unique(questions.inputs.numpy(), axis=0, return_inverse=True)[1]  # equal texts stay in one fold
    expected = torch.zeros_like(errors)
    for train, own in StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed).split(points, subjects, texts):
        known = errors[train]
        near = known[(points[own] @ points[train].T).topk(NEIGHBOURS, dim=1).indices].mean(dim=1)
        classifier = LogisticRegression(C=10, max_iter=200).fit(points[train].numpy(), subjects[train])
        chances = torch.from_numpy(classifier.predict_proba(points[own].numpy())).double()
        by_subject = [known[torch.from_numpy(subjects[train] == one)] for one in classifier.classes_]
        means = [(rows.sum(dim=0) + PRIOR * known.mean(dim=0)) / (len(rows) + PRIOR) for rows in by_subject]
        expected[own] = (near + chances @ torch.stack(means)) / 2
    return errors, expected


def at_prices(errors: Tensor, expected: Tensor, prices: Tensor) -> Judged:
    """Out-of-fold estimates [n, p] at other prices. Each fifth of the rows is decided by a guard
    that is fitted to the others."""
    costs, utilities = errors + prices, -(expected + prices)
    decisions, best = argmax_last(utilities), int(costs.mean(dim=0).argmin())
    guarded = decisions.clone()
    for fold in torch.randperm(len(costs), generator=torch.Generator().manual_seed(0)).tensor_split(FOLDS):
        others = torch.ones(len(costs), dtype=torch.bool)
        others[fold] = False
        fitted = fit_guard(utilities[others], decisions[others], costs[others], best)
        guarded[fold] = fitted.decide(utilities[fold], decisions[fold])
    return Judged(costs, decisions, guarded, bool((guarded == best).all()), ["all"] * len(costs))


def figures(found: Judged, benchmark: str, prices: str, method: str, seed: int, words: Sequence[str]) -> Row:
    """Means over tasks, as these benchmarks compare routers. The best single model is the best one on these very rows."""
    costs, tasks = found.costs, found.tasks
    best = min(range(costs.shape[1]), key=lambda k: over_tasks(costs[:, k], tasks)[0])
    loss, single = paid(costs, found.decisions), costs[:, best]
    told = {"benchmark": benchmark, "prices": prices, "method": method, "seed": str(seed), "n": str(len(costs))}
    by_task = " ".join(f"{task}:{float(loss[rows].mean()):.4f}" for task, rows in rows_by_task(tasks).items())
    told |= {"tasks": str(len({*tasks})), "fell_back": str(int(found.fell_back)), "by_task": by_task}
    told |= {"validation": "" if found.validation is None else f"{found.validation:.6f}"}
    guarded, oracle = paid(costs, found.guarded), paid(costs, cheapest(costs))
    columns = {"loss": loss, "guarded": guarded, "single": single, "oracle": oracle}
    told |= {name: f"{over_tasks(values, tasks)[0]:.6f}" for name, values in columns.items()}
    for name, values in (("", loss), ("guarded_", guarded)):
        mean, error = over_tasks(single - values, tasks)
        told |= {f"{name}gain": f"{mean:.6f}", f"{name}error": f"{error:.6f}"}
    shown = " ".join(word for word in words if not word.startswith("dataset.path="))
    return told | about(f"l2d train {shown}")


def rows_by_task(tasks: Sequence[str]) -> dict[str, list[int]]:
    return dict(sorted(grouped(range(len(tasks)), tasks.__getitem__).items()))


def over_tasks(values: Tensor, tasks: Sequence[str]) -> tuple[float, float]:
    """The mean over tasks of the means of their rows [n], and its standard error: √(Σ_t s_t²/n_t) / T."""
    found = [paired(values[rows]) for rows in rows_by_task(tasks).values()]
    errors = [error or 0.0 for _, error in found]
    return sum(mean for mean, _ in found) / len(found), math.sqrt(sum(error**2 for error in errors)) / len(found)


def of(benchmark: str) -> list[Row]:
    return [row for row in RESULTS.read() if row["benchmark"].split(",")[0] == benchmark]


def split_table(rows: Sequence[Row], published: Mapping[str, str]) -> str:
    """Accuracy in percent: the mean over tasks, over seeds; and by task. published: accuracies of others, by title."""
    tasks = list(task_losses(rows[0])) if rows else []
    named = tasks if len(tasks) > 1 else []
    head = ["router", "accuracy, ± std", "with the guard, ± std", "more than the best single model, ± 95 %", *named]
    known = {"*best single model on these rows*": percent(rows[:1], "single"), "*oracle*": percent(rows[:1], "oracle")}
    lines = [[title, accuracy, *[""] * (len(head) - 2)] for title, accuracy in {**published, **known}.items()]
    by_method = grouped(rows, lambda row: row["method"])
    for method, found in sorted(by_method.items(), key=lambda item: mean_of(item[1], "loss")):
        gain = f"{100 * mean_of(found, 'gain'):+.2f} ± {100 * Z * mean_of(found, 'error'):.2f}"
        by_task = [f"{100 - 100 * statistics.fmean(task_losses(row)[task] for row in found):.2f}" for task in named]
        lines.append([f"`{method}`", percent(found, "loss"), percent(found, "guarded"), gain, *by_task])
    return f"{markdown(head, lines)}\n\n{made_by_runs(rows)}"


def trios_table(rows: Sequence[Row]) -> str:
    """Gains over the best single model, ± 95 %, by itself → guarded: means over the sets of folds."""
    methods = [method for method in (PLAIN, *MMLU_METHODS) if any(row["method"] == method for row in rows)]
    head = ["trio, prices", "best single model", "oracle", *(m if m == PLAIN else f"`{m}`" for m in methods)]
    lines = []
    for setup, prices in ((setup, prices) for setup, levels in TRIOS.items() for prices in levels):
        here = [row for row in rows if (row["benchmark"], row["prices"]) == (f"mmlu, {setup}", prices)]
        known = [f"{mean_of(here, key):.4f}" for key in ("single", "oracle")]
        lines.append([f"{setup}, [{', '.join(prices.split())}]", *known])
        for method in methods:
            found = [row for row in here if row["method"] == method]
            gain = f"{mean_of(found, 'gain'):+.4f}"
            guarded = f"{mean_of(found, 'guarded_gain'):+.4f} ± {Z * mean_of(found, 'guarded_error'):.4f}"
            lines[-1].append(f"{gain}; falls back" if mean_of(found, "fell_back") == 1 else f"{gain} → {guarded}")
    return f"{markdown(head, lines)}\n\n{made_by_runs(rows)}"


def task_losses(row: Row) -> dict[str, float]:
    return {task: float(loss) for task, loss in (pair.rsplit(":", 1) for pair in row["by_task"].split())}


def percent(rows: Sequence[Row], column: str) -> str:
    """Accuracy, mean ± std over seeds."""
    found = [100 - 100 * float(row[column]) for row in rows]
    return f"{statistics.fmean(found):.2f}" + (f" ± {statistics.stdev(found):.2f}" if len(found) > 1 else "")


def made_by_runs(rows: Sequence[Row]) -> str:
    seeds = len({row["seed"] for row in rows})
    return f"({int(rows[0]['n']):,} held-out rows; {seeds} seed{'s' * (seeds > 1)}; {origin(rows, 'machine versions', ', ')})"


if __name__ == "__main__":
    options = given_paths(__doc__, "table", "runs_dir", what=("routerdc", "llmrouter", "mmlu"))
    runs = (options.table, options.runs_dir)
    for row in on_mmlu(*runs) if options.what == "mmlu" else on_its_split(options.what, *runs):
        RESULTS.add([row])  # at once: the next run may take long
