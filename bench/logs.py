"""Learning from a log: what is left of the gain if only one model was asked per question. Writes bench/results/logs.csv
and bench/results/coverage.csv.

    python bench/logs.py OUTCOMES.parquet    # an hour on two cores

Real outcomes of three models on MMLU are masked: a log asks one model per question. Routers learn from what is left, by
cross-validation; their choices are then judged by all outcomes, which the log does not know.
"""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.assembly.build import load_rows
from l2d.config import check, compose
from l2d.core.costs import paid
from l2d.core.guard import paired
from l2d.core.off_policy import policy_value, value_of
from l2d.data.arrays import Answers
from l2d.data.sheet import write_sheet
from l2d.data.splits import Split
from l2d.logs.model import LogModel, fit_log_model
from l2d.utils.text import Z
from records import MADE, Results, Row, about, given_paths, markdown, origin, trained

COMMAND = "python bench/logs.py OUTCOMES.parquet"
SETUP, PRICES = "llama", (0.3, 0.15, 0.0)
POLICIES = {"all asked": None, "uniform": (1 / 3, 1 / 3, 1 / 3), "80 % to the best": 0.8}
METHODS: dict[str, list[str]] = {
    **{name: [] for name in ("knn", "clusters", "linear", "linear_plugin", "plugin", "cost_regression")},
    "tdef": ["missing=direct"],
    "mild": ["missing=direct"],
    "mild, ips": ["method=mild", "missing=ips"],
    "mild, dr": ["method=mild", "missing=dr"],
}
FIGURES = ("gain", "error", "guarded", "guarded_error", "estimated", "estimated_error", "true")
GAINS = Results("logs", "policy method", f"{' '.join(FIGURES)} n {MADE}")
COVERAGE = Results("coverage", "policy propensities estimator", f"covered bias error repetitions n {MADE}")
REPETITIONS, LEARNED, JUDGED = 100, 2_000, 2_000
FORMS = {"covered": ".0%", "bias": "+.4f", "error": ".4f"}
KNOWN, ESTIMATES = ("given", "estimated"), ("doubly robust", "SNIPS", "direct", "log's own")
_models: dict[tuple[str, int], LogModel] = {}


class Questions:
    """All questions: embeddings, errors and costs [n, 3], subjects."""

    def __init__(self, outcomes: Path, data_dir: str, setup: str = SETUP) -> None:
        said = ["dataset=mmlu", "dataset.only=null", "dataset.label=subject", f"dataset.path={outcomes}"]
        arrays, _ = load_rows(check(compose([*said, f"setup={setup}", f"data_dir={data_dir}"])))
        assert arrays.panel is not None
        self.names = arrays.panel.names
        self.inputs = torch.cat([arrays.train_inputs, arrays.test_inputs])
        self.errors = torch.cat([arrays.panel.train.errors, arrays.panel.test.errors])
        self.subjects = [*(arrays.train_categories or ()), *(arrays.categories or ())]
        self.costs = self.errors + torch.tensor(PRICES, dtype=torch.float64)
        self.best = int(self.costs.mean(dim=0).argmin())

    def __len__(self) -> int:
        return len(self.inputs)

    def chances(self, policy: Any) -> Tensor:
        """The chance of each model to be asked [3]."""
        if isinstance(policy, float):
            policy = [policy if k == self.best else (1 - policy) / 2 for k in range(3)]
        return torch.tensor(policy, dtype=torch.float64)

    def asked(self, policy: Any, seed: int) -> Tensor:
        """bool [n, 3]: one model per question, by lot."""
        drawn = np.random.default_rng(seed).choice(3, size=len(self), p=self.chances(policy).numpy())
        return torch.eye(3, dtype=torch.bool)[torch.from_numpy(drawn)]

    def table(self, file: Path, policy: Any) -> Path:
        """A file of the questions in the log, the others empty. Its propensities are those of the policy."""
        columns: dict[str, list[Any]] = {f"f{k}": self.inputs[:, k].tolist() for k in range(self.inputs.shape[1])}
        columns |= {"id": list(range(len(self))), "subject": self.subjects}
        asked = torch.ones_like(self.errors, dtype=torch.bool) if policy is None else self.asked(policy, 0)
        for k, name in enumerate(self.names):
            known = zip((1 - self.errors[:, k]).tolist(), asked[:, k].tolist(), strict=True)
            columns[f"correct_{name}"] = [value if there else None for value, there in known]
            if policy is not None:
                columns[f"propensity_{name}"] = [float(self.chances(policy)[k])] * len(self)
        write_sheet(file, columns)
        return file


def measure_gains(questions: Questions, work: Path) -> None:
    rows = []
    prices = f"cost.prices=[{','.join(map(str, PRICES))}]"
    for number, (policy, asked) in enumerate(POLICIES.items()):
        path = questions.table(work / f"log{number}.parquet", asked)
        given = ["dataset=table", f"dataset.path={path}", f"dataset.name=log{number}", f"runs_dir={work / 'runs'}"]
        given += ["cost=error_plus_cost", prices, "dataset.label=subject", "progress=false"]
        for method, more in METHODS.items():
            if asked is None and more and method not in ("tdef", "mild"):
                continue
            run, metrics = trained([*given, f"method={method.split(',')[0]}", *more])
            with np.load(run.path / "test.npz") as arrays:
                places = torch.from_numpy(arrays["ids"].astype(np.int64))
                decisions, guarded = (torch.from_numpy(arrays[name]) for name in ("decisions", "guarded"))
            costs = questions.costs[places]
            alone = costs[:, questions.best]
            row = dict(zip(("gain", "error"), paired(alone - paid(costs, decisions)), strict=True))
            row |= dict(zip(("guarded", "guarded_error"), paired(alone - paid(costs, guarded)), strict=True))
            if metrics.log is not None:
                value = metrics.log.router.doubly_robust
                row |= {"estimated": value.value, "estimated_error": value.standard_error}
            row["true"] = float(paid(costs, decisions).mean())
            told = {key: "" if row.get(key) is None else f"{row[key]:.6f}" for key in FIGURES}
            rows.append({"policy": policy, "method": method, **told, "n": str(len(questions)), **about(COMMAND)})
            GAINS.write(rows)  # at once: a run takes minutes
            print(policy, method, told["gain"], told["guarded"], flush=True)


def coverage(questions: Questions) -> list[Row]:
    """Intervals of a fixed router's value: a model of the costs learns from LEARNED rows of a log, and JUDGED others judge it. The
    truth is the mean over all rows but those that the router learned from."""
    everything = np.random.default_rng(0).permutation(len(questions))
    own, rest = (torch.from_numpy(part) for part in np.split(everything, [len(questions) // 3]))
    decisions = nearest_choice(questions, own)
    truth = float(paid(questions.costs, decisions)[rest].mean())
    rows = []
    for policy, asked in POLICIES.items():
        if asked is None:
            continue
        repeated = range(REPETITIONS)
        values = {k: [one_log(questions, rest, asked, decisions, n, k) for n in repeated] for k in KNOWN}
        paid_by_log = float((questions.costs[rest] @ questions.chances(asked)).mean())
        for known, name in product(KNOWN, ESTIMATES):
            found = np.array([value[name] for value in values[known]])
            aim = paid_by_log if name == "log's own" else truth
            row = {"policy": policy, "propensities": known, "estimator": name, "repetitions": str(REPETITIONS)}
            covered = f"{float((abs(found[:, 0] - aim) < 1.96 * found[:, 1]).mean()):.4f}"
            row |= {
                "covered": covered,
                "bias": f"{found[:, 0].mean() - aim:.6f}",
                "error": f"{found[:, 0].std(ddof=1):.6f}",
            }
            rows.append({**row, "n": str(JUDGED), **about(COMMAND)})
        print(policy, "done", flush=True)
    return rows


def one_log(
    questions: Questions, rest: Tensor, policy: Any, decisions: Tensor, repetition: int, known: str
) -> dict[str, tuple[float, float]]:
    """Value and standard error of each estimate from one log. The model of the costs does not depend on propensities."""
    drawn = rest[torch.from_numpy(np.random.default_rng(repetition).permutation(len(rest)))]
    there = questions.asked(policy, repetition + 1)
    given = questions.chances(policy).expand(len(questions), 3) if known == "given" else None
    learned, judged = (
        logged_split(questions, part, there, chances)
        for part, chances in zip(drawn[: LEARNED + JUDGED].split(LEARNED), (None, given), strict=True)
    )
    key = (str(policy), repetition)
    if key not in _models:
        _models[key] = fit_log_model(learned, questions.names)
    seen = _models[key].judged(judged)
    assert seen.logged is not None
    value = value_of(decisions[seen.rows], seen.costs, seen.logged)
    assert value.snips is not None
    found = (value.doubly_robust, value.snips, value.direct, policy_value(judged.costs))
    return {name: (one.value, one.standard_error or 0.0) for name, one in zip(ESTIMATES, found, strict=True)}


def logged_split(questions: Questions, rows: Tensor, asked: Tensor, chances: Tensor | None) -> Split:
    errors = questions.errors[rows].where(asked[rows], torch.nan)
    answers = Answers(errors, propensities=None if chances is None else chances[rows])
    prices = torch.tensor(PRICES, dtype=torch.float64)
    return Split(questions.inputs, rows, answers, errors + prices, prices, torch.full((len(rows),), -1))


def nearest_choice(questions: Questions, own: Tensor) -> Tensor:
    """The decisions of a router of 200 nearest neighbours among `own`."""
    kept = torch.nn.functional.normalize(questions.inputs[own], dim=1)
    found = []
    for part in torch.nn.functional.normalize(questions.inputs, dim=1).split(1_024):
        near = (part @ kept.T).topk(200, dim=1).indices
        found.append(questions.costs[own][near].mean(dim=1).argmin(dim=1))
    return torch.cat(found)


def gains_table() -> str:
    rows = {(row["policy"], row["method"]): row for row in GAINS.read()}
    lines = []
    for method in METHODS:
        lines.append([f"`{method}`"])
        for policy in POLICIES:
            row = rows.get((policy, method))
            gain = "" if row is None else f"{float(row['gain']):+.4f} ± {Z * float(row['error']):.4f}"
            lines[-1].append(gain if row is None else f"{gain}, guarded {float(row['guarded']):+.4f}")
    said = "Gain over the best single model, ± half of a 95 % interval, and with the guard."
    return f"{markdown(('method', *POLICIES), lines)}\n\n{said} {told(GAINS)}"


def coverage_table() -> str:
    rows = COVERAGE.read()
    keys = COVERAGE.keys.split()
    lines = [[*(row[k] for k in keys), *(f"{float(row[k]):{form}}" for k, form in FORMS.items())] for row in rows]
    head = ("log", "propensities", "estimate", "95 % interval covers the truth", "bias", "standard deviation")
    return f"{markdown(head, lines)}\n\n{rows[0]['repetitions']} repetitions each. {told(COVERAGE)}"


def told(results: Results) -> str:
    return f"n = {int(results.read()[0]['n']):,}; {origin(results.read())}."


if __name__ == "__main__":
    work, questions = Path("runs/logs"), Questions(given_paths(__doc__, "outcomes").outcomes, "data")
    work.mkdir(parents=True, exist_ok=True)
    COVERAGE.write(coverage(questions))
    measure_gains(questions, work)
