"""What `method=plan` gains by asking one after another, on answers of language models. Writes bench/results/plans.csv.

    python bench/plans.py pools --runs-dir RUNS_DIR --zeroeval TABLE     # two pools, three sets of folds: 10 minutes on two cores
    python bench/plans.py drawn --runs-dir RUNS_DIR --zeroeval TABLE     # 20 pools drawn at random: 10 minutes

TABLE: 2,840 questions with columns correct_M, answer_M and chars_M of 30 models, from the public outputs of WildEval/ZeroEval. The
prices are ours. As `l2d train` does it, every row is judged by routers that did not see it. They see the question alone.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from l2d.core.guard import paired
from l2d.data.sheet import Sheet, read_sheet, write_sheet
from l2d.utils.text import Z
from records import MADE, Results, Row, about, given_paths, grouped, markdown, origin, trained

POOLS = {
    "A": "gemini-1.5-flash=0.005 gpt-4o-mini-2024-07-18=0.01 claude-3-5-sonnet-20241022=0.15 o1-mini-2024-09-12=0.15",
    "B": "Meta-Llama-3.1-8B-Instruct=0.005 gemma-2-9b-it=0.005 Meta-Llama-3.1-70B-Instruct=0.05 gpt-4o-2024-08-06=0.15",
}
ANSWERS, LENGTHS = "answers", "answers, lengths"
SEEDS, MEAN = (0, 1, 2), "mean"
DRAWN, SIZE = 20, 4  # pools, and models in each
KNOWN, DEAREST = 0.99, 0.15  # the least share of known rows, the highest price
SINGLE, AUTO, ONCE, LEARNED, GUARDED, ORACLE = "best single", "auto", "one choice", "plan", "plan, guarded", "oracle"
SIMPLE = (SINGLE, ONCE, "cascade", "two agree", "majority")
SHOWN = (SINGLE, AUTO, *SIMPLE[1:], LEARNED, GUARDED, ORACLE)
RIVALS = {"once": "one choice", "auto": "`auto`", "simple": "the best simple plan"}
# less_…: how much less it costs than that rival, and the standard error of the paired differences.
FIGURES = "cost price less_once once_error less_auto auto_error less_simple simple_error"
RESULTS = Results("plans", "pool seen seed plan", f"models {FIGURES} n {MADE}", compared=FIGURES)
Outcomes = dict[str, Tensor]  # costs and prices [2, n] by the name of a plan


def write_pool(sheet: Sheet, models: Sequence[str], file: Path, seen: str) -> Path:
    """A table of the questions that all these models were asked."""
    cells = {name: np.array(column.to_pylist(), dtype=object) for name, column in sheet.columns.items()}
    whole = np.all([cells[f"correct_{one}"] != None for one in models], axis=0)  # noqa: E711
    kinds = {"correct": "correct", "answer": "answer"} | ({"length": "chars"} if seen == LENGTHS else {})
    taken = {f"{kind}_{one}": f"{name}_{one}" for one in models for kind, name in kinds.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_sheet(file, {name: cells[of][whole].tolist() for name, of in {"question": "question", **taken}.items()})
    return file


def judged(file: Path, pool: Mapping[str, float], method: str, seed: int) -> Outcomes:
    """What each expert, each plan and the guarded router costs on rows that were held out."""
    prices = ",".join(map(str, pool.values()))
    words = ["dataset=table", f"dataset.path={file}", "dataset.text=question", f"dataset.experts=[{','.join(pool)}]"]
    words += [f"method={method}", f"seed={seed}", "cost=error_plus_cost", f"cost.prices=[{prices}]"]
    words += ["evaluation=cross_validate", f"runs_dir={file.with_suffix('')}", "progress=false"]
    run, _ = trained(words)
    with np.load(run.path / "test.npz") as saved:
        both = [np.broadcast_to(saved[name], saved["costs"].shape) for name in ("costs", "prices")]
        return outcomes(torch.from_numpy(np.stack(both)).double(), torch.from_numpy(saved["guarded"]), len(pool))


def outcomes(both: Tensor, guarded: Tensor, p: int) -> Outcomes:
    """both: costs and prices [2, n, p + plans]. guarded [n]: the expert or the plan."""
    costs = both[0, :, :p]
    plans = dict(zip((*SIMPLE[1:], LEARNED), both[:, :, p:].unbind(dim=2), strict=False))
    chosen = {GUARDED: guarded, ORACLE: costs.argmin(dim=1)}
    found = {name: both[:, torch.arange(len(guarded)), place] for name, place in chosen.items()}
    return {SINGLE: both[:, :, int(costs.mean(dim=0).argmin())], **plans, **found}


def mean_outcomes(each: Sequence[Outcomes]) -> Outcomes:
    """Of the same rows in several sets of folds."""
    return {name: torch.stack([one[name] for one in each]).mean(dim=0) for name in each[0]}


def rows_of(found: Outcomes, keys: Sequence[str], pool: Mapping[str, float]) -> list[Row]:
    """keys: the pool's name, what is seen, the seed."""
    rivals = {"once": ONCE, "auto": AUTO, "simple": min(SIMPLE, key=lambda name: float(found[name][0].mean()))}
    told = about(f"python bench/plans.py {'pools' if keys[0] in POOLS else 'drawn'}")
    told |= {"models": " ".join(f"{model}={price:g}" for model, price in pool.items())}
    rows = []
    for name, (costs, prices) in found.items():
        figures: dict[str, float | None] = {"cost": float(costs.mean()), "price": float(prices.mean())}
        for short, rival in rivals.items():
            if rival in found:
                figures[f"less_{short}"], figures[f"{short}_error"] = paired(found[rival][0] - costs)
        shown = {figure: f"{value:.6f}" for figure, value in figures.items()}
        keyed = zip(RESULTS.keys.split(), (*keys, name), strict=True)
        rows.append(told | {"n": str(len(costs))} | dict(keyed) | shown)
    return rows


def pools(sheet: Sheet, runs_dir: Path) -> Iterator[list[Row]]:
    for (name, words), seen in product(POOLS.items(), (ANSWERS, LENGTHS)):
        pool, each = {model: float(price) for model, price in (word.split("=") for word in words.split())}, []
        files = [(one, runs_dir / name / f"{one.split()[-1]}.parquet") for one in (ANSWERS, seen)]
        plain, own = (write_pool(sheet, list(pool), file, one) for one, file in files)
        for seed in SEEDS:
            once = judged(plain, pool, "auto", seed)[GUARDED]
            each.append(judged(own, pool, "plan", seed) | {AUTO: once})
            yield rows_of(each[-1], (name, seen, str(seed)), pool)
        yield rows_of(mean_outcomes(each), (name, seen, MEAN), pool)


def drawn_pools(sheet: Sheet) -> list[dict[str, float]]:
    """Different ones. The price of a model is its rank by accuracy: the best of all models costs 0.15, the worst nearly nothing."""
    right = {name[8:]: column.to_pylist() for name, column in sheet.columns.items() if name.startswith("correct_")}
    known = {name: [one for one in cells if one is not None] for name, cells in right.items()}
    models = sorted(
        (name for name in known if len(known[name]) >= KNOWN * len(sheet)), key=lambda name: np.mean(known[name])
    )
    rng, found = np.random.default_rng(0), dict[tuple[int, ...], dict[str, float]]()
    while len(found) < DRAWN:
        ranks = tuple(sorted(rng.choice(len(models), SIZE, replace=False).tolist()))
        found[ranks] = {models[rank]: round(DEAREST * (rank + 1) / len(models), 4) for rank in ranks}
    return list(found.values())


def drawn(sheet: Sheet, runs_dir: Path) -> Iterator[list[Row]]:
    for number, pool in enumerate(drawn_pools(sheet), 1):
        file = write_pool(sheet, list(pool), runs_dir / "drawn" / f"{number}.parquet", ANSWERS)
        yield rows_of(judged(file, pool, "plan", 0), (str(number), ANSWERS, "0"), pool)


def pools_table(rows: Sequence[Row]) -> str:
    """Means over the sets of folds; the gains of the guarded plan with their intervals."""
    used = [row for row in rows if row["seed"] == MEAN]
    cells = grouped(used, lambda row: f"{row['pool']}, {row['seen']}")
    by = [{row["plan"]: row for row in some} for some in cells.values()]
    lines = [[name, *(f"{float(one[name]['cost']):.4f}" for one in by)] for name in SHOWN]
    for short, rival in RIVALS.items():
        gains = [gain(one[GUARDED], short) for one in by]
        lines.append([f"guarded plan less than {rival}", *(f"{less:+.4f} ± {error:.4f}" for less, error in gains)])
    return f"{markdown(['', *cells], lines)}\n\n{foot(used)}"


def gain(row: Row, rival: str) -> tuple[float, float]:
    """With half of its 95 % interval."""
    return float(row[f"less_{rival}"]), Z * float(row[f"{rival}_error"])


def drawn_table(rows: Sequence[Row]) -> str:
    used, lines = [row for row in rows if row["pool"] not in POOLS and row["plan"] == GUARDED], []
    for short in ("once", "simple"):
        gains = [gain(row, short) for row in used]
        less = [value for value, _ in gains]
        counts = [sum(one > 0 for one in less), sum(one > e for one, e in gains), sum(one < -e for one, e in gains)]
        spread = f"{statistics.fmean(less):+.4f} ({min(less):+.4f} to {max(less):+.4f})"
        lines.append([RIVALS[short], *(f"{count} of {len(used)}" for count in counts), spread])
    head = ("the guarded plan beside", "costs less", "significantly less", "significantly more", "mean gain (range)")
    return f"{markdown(head, lines)}\n\n{foot(used)}"


def foot(rows: Sequence[Row]) -> str:
    numbers = [f"{n:,}" for n in sorted({int(row["n"]) for row in rows})]
    return f"{' or '.join(numbers)} questions; {origin(rows)}."


if __name__ == "__main__":
    measures = {"pools": pools, "drawn": drawn}
    options = given_paths(__doc__, "--runs-dir", "--zeroeval", what=measures)
    for rows in measures[options.what](read_sheet(options.zeroeval), options.runs_dir):
        RESULTS.add(rows)
