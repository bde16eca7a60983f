"""Learning from a log: what is left of the gain if only one model was asked per question. Writes bench/results/logs.csv.

    python bench/logs.py OUTCOMES.parquet    # an hour on two cores

Real outcomes of three models on MMLU are masked: a log asks one model per question. Routers learn from what is left, by
cross-validation; their choices are then judged by all outcomes, which the log does not know.
"""

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.assembly.build import load_rows
from l2d.config import check, compose
from l2d.core.costs import paid
from l2d.core.guard import paired
from l2d.data.sheet import write_sheet
from l2d.utils.text import Z
from records import MADE, Results, about, given_paths, markdown, origin, trained

COMMAND = "python bench/logs.py OUTCOMES.parquet"
SETUP, PRICES = "llama", (0.3, 0.15, 0.0)
POLICIES = {"all asked": None, "uniform": (1 / 3, 1 / 3, 1 / 3), "80 % to the best": 0.8}
METHODS: dict[str, list[str]] = {
    **{name: [] for name in ("knn", "clusters", "linear", "linear_plugin", "plugin", "cost_regression")},
    "tdef": ["missing=direct"],
    "mild": ["missing=direct"],
    "mild, ips": ["missing=ips"],
    "mild, dr": ["missing=dr"],
}
FIGURES = ("gain", "error", "guarded", "guarded_error", "estimated", "estimated_error", "true")
GAINS = Results("logs", "policy method", f"{' '.join(FIGURES)} n {MADE}")


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

    def chances(self, policy: Any) -> Tensor:
        """The chance of each model to be asked [3]."""
        if isinstance(policy, float):
            policy = [policy if k == self.best else (1 - policy) / 2 for k in range(3)]
        return torch.tensor(policy, dtype=torch.float64)

    def asked(self, policy: Any, seed: int) -> Tensor:
        """bool [n, 3]: one model per question, by lot."""
        drawn = np.random.default_rng(seed).choice(3, size=len(self.inputs), p=self.chances(policy).numpy())
        return torch.eye(3, dtype=torch.bool)[torch.from_numpy(drawn)]

    def table(self, file: Path, policy: Any) -> Path:
        """A file of the questions in the log, the others empty. Its propensities are those of the policy."""
        columns: dict[str, list[Any]] = {f"f{k}": self.inputs[:, k].tolist() for k in range(self.inputs.shape[1])}
        columns |= {"id": list(range(len(self.inputs))), "subject": self.subjects}
        asked = torch.ones_like(self.errors, dtype=torch.bool) if policy is None else self.asked(policy, 0)
        for k, name in enumerate(self.names):
            known = zip((1 - self.errors[:, k]).tolist(), asked[:, k].tolist(), strict=True)
            columns[f"correct_{name}"] = [value if there else None for value, there in known]
            if policy is not None:
                columns[f"propensity_{name}"] = [float(self.chances(policy)[k])] * len(self.inputs)
        write_sheet(file, columns)
        return file


def measure_gains(questions: Questions, work: Path) -> None:
    rows, prices = [], ",".join(map(str, PRICES))
    for number, (policy, asked) in enumerate(POLICIES.items()):
        path = questions.table(work / f"log{number}.parquet", asked)
        given = ["dataset=table", f"dataset.path={path}", f"dataset.name=log{number}", f"runs_dir={work / 'runs'}"]
        given += ["cost=error_plus_cost", f"cost.prices=[{prices}]", "dataset.label=subject", "progress=false"]
        for method, more in METHODS.items():
            if asked is None and "," in method:
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
            rows.append({"policy": policy, "method": method, **told, "n": str(len(questions.inputs)), **about(COMMAND)})
            GAINS.write(rows)  # at once: a run takes minutes
            print(policy, method, told["gain"], told["guarded"], flush=True)


def gains_table() -> str:
    rows = {(row["policy"], row["method"]): row for row in GAINS.read()}
    shown = {
        key: f"{float(row['gain']):+.4f} ± {Z * float(row['error']):.4f}, guarded {float(row['guarded']):+.4f}"
        for key, row in rows.items()
    }
    lines = [[f"`{method}`", *(shown.get((policy, method), "") for policy in POLICIES)] for method in METHODS]
    said = "Gain over the best single model, ± half of a 95 % interval, and with the guard."
    n = next(iter(rows.values()))["n"]
    return f"{markdown(('method', *POLICIES), lines)}\n\n{said} n = {int(n):,}; {origin(rows.values())}."


def coverage_line() -> str:
    """How often the log's estimate of a router agrees with all outcomes."""
    rows = [row for row in GAINS.read() if row["estimated"]]
    apart = [abs(float(row["estimated"]) - float(row["true"])) for row in rows]
    inside = sum(one < Z * float(row["estimated_error"]) for one, row in zip(apart, rows, strict=True))
    said = f"In {inside} of {len(rows)} cases the 95 % interval covers the cost by all outcomes"
    return f"{said} (mean distance {statistics.fmean(apart):.4f}; bench/results/logs.csv)."


if __name__ == "__main__":
    work, questions = Path("runs/logs"), Questions(given_paths(__doc__, "outcomes").outcomes, "data")
    work.mkdir(parents=True, exist_ok=True)
    measure_gains(questions, work)
