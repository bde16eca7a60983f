"""What promises are worth: a new expert after few outcomes, and an error rate that is kept. Writes bench/results/promises.csv.

    python bench/promises.py --zeroeval TABLE --mmlu TABLE --networks DATA    # 5 minutes of one core

TABLE: outcomes of models, columns correct_M (ZeroEval) or M (MMLU). Linear estimates from TF-IDF of the question learn from one
half of the questions; the other half judges. The price of a model is its rank by accuracy: the best costs 0.15 of an error.
DATA: see bench/people.py. CIFAR-10H: three networks together, or people, whose labels cost 1, judged by folds; the truth is the
class with most votes.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import bdtr
from torch import Tensor

from l2d.core.costs import paid
from l2d.core.newcomer import Prior, Surprise, borrow_beside, level_by_price
from l2d.core.risk import factors_by_spread
from l2d.data.sheet import Sheet, read_sheet
from l2d.data.text.words import Words
from l2d.networks.estimators.estimator import FitRows
from l2d.networks.estimators.linear import Ridge
from l2d.router.added import CAUTION
from people import drawn_votes, inputs_of, mean_network, read
from records import MADE, Results, Row, about, given_paths, grouped, markdown, origin

POOLS, KNOWN, DEAREST, MOST, FOLDS = 150, 3, 0.15, 6_000, 5
ASKED, DRAWS, CONFIDENCE = (5, 20, 50, 200), 1_000, 0.95
CALIBRATED = {"zeroeval": 500, "mmlu": 500, "person": 2_000, "crowd": 10_000}  # rows: few errors need many
MORE = {"zeroeval": (0.05, 0.1), "mmlu": (0.05, 0.1), "person": (0.005, 0.01), "crowd": (0.002, 0.005, 0.01, 0.02)}
RULES = {"estimate alone": 0.0, "with 1.5 standard errors": CAUTION}
FIGURES = f"value worst spend ideal drifted n {MADE}"
RESULTS = Results("promises", "what data case level", FIGURES, compared="value worst spend drifted")
TITLES = {
    "zeroeval": "ZeroEval",
    "mmlu": "MMLU",
    "person": "CIFAR-10H, network or one vote",
    "crowd": "CIFAR-10H, network or 50 votes",
}


def halves(sheet: Sheet, name: str, text: str) -> dict[str, Tensor]:
    """Chances and outcomes of all models on the rows that are learned from (chances by folds), and on the others."""
    columns = [c for c in sheet.columns if c.startswith("correct_")] if name == "zeroeval" else list(sheet.columns)[4:]
    right = np.stack([sheet.numbers(column, gaps=True) for column in columns], axis=1)
    right = right[:, np.isnan(right).mean(axis=0) < 0.01]
    rows = np.random.default_rng(0).permutation(np.flatnonzero(~np.isnan(right).any(axis=1)))[:MOST]
    texts, outcomes, half = sheet.columns[text].to_pylist(), torch.from_numpy(right[rows]), len(rows) // 2
    words = Words().fitted([texts[i] for i in rows[:half]])
    inputs = torch.from_numpy(words.embed([texts[i] for i in rows])).float()

    asked, unseen = outcomes[:half], ridge_of(inputs[:half], outcomes[:half])(inputs[half:]).double()
    seen = crossed(inputs[:half], asked)
    return {"seen": seen, "unseen": unseen, "asked": asked, "true": outcomes[half:], "price": ranked(asked)}


def ridge_of(inputs: Tensor, right: Tensor) -> Ridge:
    ridge = Ridge()
    ridge.fit(FitRows(inputs, right, torch.full((len(right),), -1)))
    return ridge


def crossed(inputs: Tensor, right: Tensor) -> Tensor:
    """The chances on rows of each fold, by those of the others. [n, p]"""
    fold, found = torch.arange(len(right)) % FOLDS, torch.zeros(right.shape).double()
    for k in range(FOLDS):
        found[fold == k] = ridge_of(inputs[fold != k], right[fold != k])(inputs[fold == k]).double()
    return found


def images(folder: Path, case: str) -> dict[str, Tensor]:
    """The same of the networks' answer, and of one person's vote or of all votes, which are right."""
    chances, votes, _ = read(folder)
    network, truth = mean_network(chances), votes.argmax(axis=1)
    inputs = torch.from_numpy(np.concatenate([inputs_of(one) for one in (network, *chances)], axis=1))
    other = truth if case == "crowd" else drawn_votes(votes)[:, 0]
    right = torch.from_numpy(np.stack([network.argmax(axis=1), other], axis=1) == truth[:, None]).double()
    return {"unseen": crossed(inputs, right), "true": right, "price": torch.tensor([0.0, 1.0]).double()}


def newcomers(data: dict[str, Tensor], price: Tensor) -> Iterator[tuple[str, int, np.ndarray, np.ndarray]]:
    """For each rule and number of outcomes: the gain of each pool over the known models, and with all outcomes."""
    rng = np.random.default_rng(0)
    pools = [rng.permutation(len(price))[: KNOWN + 1].tolist() for _ in range(POOLS)]

    def gain(pool: list[int], chance: Tensor) -> float:
        costs = 1 - data["true"][:, pool] + price[pool]
        known = 1 - data["unseen"][:, pool[:KNOWN]] + price[pool[:KNOWN]]
        expected = torch.cat([known, (1 - chance + price[pool[KNOWN]])[:, None]], dim=1)
        return float((paid(costs, known.argmin(dim=1)) - paid(costs, expected.argmin(dim=1))).mean())

    whole = np.array([gain(pool, data["unseen"][:, pool[KNOWN]]) for pool in pools])
    for n in ASKED:
        found: dict[str, list[float]] = {rule: [] for rule in RULES}
        for pool in pools:
            rows, known, new = rng.permutation(len(data["seen"]))[:n], pool[:KNOWN], pool[KNOWN]
            seen, asked = data["seen"][:, known], data["asked"]
            weights, surprise = torch.full((KNOWN,), 1 / KNOWN).double(), Surprise.of(asked[:, known] - seen)
            levels = torch.logit(seen.clamp(0.02, 0.98)).mean(dim=0)
            prior = Prior(weights, levels @ weights, level=level_by_price(levels, price[known], float(price[new])))
            fit = borrow_beside(seen[rows], asked[rows, new], asked[rows][:, known], surprise, prior)
            wary = fit.chances(seen)[1].mean()
            for rule, errors in RULES.items():
                found[rule].append(gain(pool, fit.chances(data["unseen"][:, known])[0] - errors * wary))
        yield from ((rule, n, np.array(gains), whole) for rule, gains in found.items())


def ranked(outcomes: Tensor) -> Tensor:
    return DEAREST * (outcomes.mean(dim=0).argsort().argsort() + 1).double() / outcomes.shape[1]


def broken(name: str, data: dict[str, Tensor]) -> Iterator[dict[str, Any]]:
    """For some promised errors: how often one is broken over draws of the rows that calibrate, the mean true error and spend. All
    rows that were not learned from are the truth. drifted: how often, if later each row of the harder half comes twice. ideal: the
    spend if the truth were known."""
    price, expected, rng = data["price"], 1 - data["unseen"], np.random.default_rng(0)
    factors = factors_by_spread(price)
    decisions = torch.stack([(expected + factor * price).argmin(dim=1) for factor in factors])
    errors = torch.stack([paid(1 - data["true"], one) for one in decisions])
    spend, true, hardness = price[decisions].mean(dim=1), errors.mean(dim=1), expected.mean(dim=1)
    weights = 1.0 + (hardness > hardness.median())
    later = errors.double() @ weights.double() / weights.sum()
    n, size = CALIBRATED[name], len(expected)
    drawn = torch.from_numpy(rng.multinomial(n, np.full(size, 1 / size), size=DRAWS)).to(errors)
    wrong = (errors @ drawn.T).T.numpy()  # [draws, points]
    for more in MORE[name]:
        level = round(float(true[0]) + more, 3)
        kept_so_far = (bdtr(wrong, n, level) <= 1 - CONFIDENCE).cumprod(axis=1)  # as last_kept, of all draws at once
        passed = kept_so_far.sum(axis=1)
        kept = torch.from_numpy(passed[passed > 0] - 1)
        yield {
            "level": level,
            "value": float((true[kept] > level).sum()) / DRAWS,
            "drifted": float((later[kept] > level).sum()) / DRAWS,
            "worst": f"{float(true[kept].mean()):.4f}",
            "spend": f"{float(spend[kept].mean() / price.max()):.3f}",
            "ideal": f"{float(spend[true <= level].min() / price.max()):.3f}",
        }


def rows_of(name: str, data: dict[str, Tensor]) -> Iterator[dict[str, Any]]:
    told = {**about("python bench/promises.py"), "data": name, "n": len(data["true"])}
    for found in broken(name, data):
        yield told | {"what": "error"} | found
    if "asked" not in data:
        return
    shuffled = data["price"][torch.from_numpy(np.random.default_rng(1).permutation(len(data["price"])))]
    for world, price in (("", data["price"]), (", prices at random", shuffled)):
        for rule, n, gains, whole in newcomers(data, price):
            found = {"value": f"{gains.mean() / whole.mean():.3f}", "case": f"{rule}{world}", "level": n}
            found["worst"] = f"{np.sort(gains)[: len(gains) // 10].mean():.4f}"
            yield told | {"what": "new"} | found


def new_table(rows: Sequence[Row]) -> str:
    used = sorted((row for row in rows if row["what"] == "new"), key=lambda row: int(row["level"]))
    lines = []
    for (data, case), some in sorted(grouped(used, lambda row: (row["data"], row["case"])).items()):
        lines.append([f"{TITLES[data]}, {case}", *(f"{float(row['value']):.0%} ({row['worst']})" for row in some)])
    return f"{markdown(['outcomes', *map(str, ASKED)], lines)}\n\n{POOLS} pools; {foot(used)}"


def error_table(rows: Sequence[Row]) -> str:
    used = sorted((row for row in rows if row["what"] == "error"), key=lambda row: (row["data"], float(row["level"])))
    forms = {"level": ".1%", "value": ".1%", "drifted": ".1%", "worst": ".2%", "spend": ".0%", "ideal": ".0%"}
    lines = []
    for row in used:
        shown = (f"{float(row[name]):{form}}" for name, form in forms.items())
        lines.append([f"{TITLES[row['data']]} ({CALIBRATED[row['data']]:,})", *shown])
    head = ["rows to calibrate", "promised error", "broken", "after a drift", "true error"]
    head += ["spend, of always asking the dearest", "if the truth were known"]
    return f"{markdown(head, lines)}\n\n{DRAWS:,} draws; {foot(used)}"


def foot(rows: Sequence[Row]) -> str:
    n = ", ".join(f"{TITLES[name]} {int(k):,}" for name, k in sorted({(row["data"], row["n"]) for row in rows}))
    return f"questions that judge: {n}; {origin(rows)}."


if __name__ == "__main__":
    options = given_paths(__doc__, "--zeroeval", "--mmlu", "--networks")
    torch.set_num_threads(1)
    for name, text in (("zeroeval", "question"), ("mmlu", "prompt")):
        RESULTS.add(rows_of(name, halves(read_sheet(vars(options)[name]), name, text)))
    for case in ("person", "crowd"):
        RESULTS.add(rows_of(case, images(options.networks, case)))
