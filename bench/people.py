"""A network first, a person where it is unsure, a second person where they disagree: error against the number of people's labels,
beside one choice. Writes bench/results/people.csv and docs/figures/people.png.

    python bench/people.py --networks DATA    # 5 minutes of CPU time

DATA: the folder data of Networks-Learning/improve-expert-predictions-conformal-prediction: the test images of CIFAR-10 with
CIFAR-10H's votes and the scores of three networks; here the network is all three together. People: three votes per image, drawn
without replacement. Routers of one half of the images are judged on the other.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

import l2d
from records import DOCS, MADE, Results, Row, about, given_paths, markdown, origin

NETWORKS = ("densenet-bc-L190-k40", "preresnet-110", "resnet-110")
PRICES = (0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.035, 0.025, 0.0125, 0.006)  # of a person's label, in errors
PEOPLE = 3
METHODS = {"auto": "one choice", "plan": "plan"}
NAMES = ["network", *(f"person {j + 1}" for j in range(PEOPLE))]
RESULTS = Results("people", "method price", f"labels error network n {MADE}", compared="labels error")


def read(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log chances of each network [networks, n, 10], CIFAR-10H's votes [n, 10], and the labels [n]."""
    tables = np.stack([np.loadtxt(folder / f"{name}.csv", delimiter=",") for name in NETWORKS])
    assert (tables[:, :, :11] == tables[0, :, :11]).all()
    return np.log(tables[:, :, 11:].clip(1e-12)), tables[0, :, 1:11].astype(int), tables[0, :, 0].astype(int)


def mean_network(chances: np.ndarray) -> np.ndarray:
    """The log chances of all networks together. [networks, n, 10] -> [n, 10]"""
    mean = chances.mean(axis=0)
    return mean - np.log(np.exp(mean).sum(axis=1, keepdims=True))


def inputs_of(chances: np.ndarray) -> np.ndarray:
    """Log chances, the largest one, and how far it is above the next. [n, 10] -> [n, 12]"""
    largest = np.sort(chances, axis=1)[:, :-3:-1]
    return np.column_stack([chances, largest[:, 0], largest[:, 0] - largest[:, 1]]).astype(np.float32)


def drawn_votes(counts: np.ndarray) -> np.ndarray:
    """Votes of each image, drawn without replacement. [n, classes] -> [n, PEOPLE]"""
    draw = np.random.default_rng(0)
    return np.stack([draw.permutation(np.repeat(np.arange(len(row)), row))[:PEOPLE] for row in counts])


def measured(chances: np.ndarray, answers: np.ndarray, truth: np.ndarray) -> list[Row]:
    """Two halves: learned from one, judged on the other."""
    errors, found = answers != truth[:, None], dict[tuple[str, float], list[tuple[float, float]]]()
    confidence = np.full(answers.shape, np.nan)
    confidence[:, 0] = chances[:, -1]
    halves, options = np.arange(len(truth)) % 2 == 0, {"progress": False, "method.seconds": 20}
    for method, known in ((method, half) for method in METHODS for half in (halves, ~halves)):
        said, new = (
            {} if method == "auto" else {"answers": {"answers": answers[rows], "confidence": confidence[rows]}}
            for rows in (known, ~known)
        )
        paid = {price: [0.0, *[price] * PEOPLE] for price in PRICES}
        given = {"errors": errors[known], "prices": paid[PRICES[0]], "experts": NAMES, "options": options, **said}
        router = l2d.fit(chances[known], method=method, **given)
        for price in PRICES:
            score = router.at(prices=paid[price]).score(
                chances[~known], errors=errors[~known], prices=paid[price], **new
            )
            spent = score.mean_price or 0.0
            found.setdefault((method, price), []).append((spent / price, score.deferral_loss - spent))
    told = about("python bench/people.py") | {"network": f"{errors[:, 0].mean():.6f}", "n": str(len(truth))}
    means = {key: np.mean(pairs, axis=0).tolist() for key, pairs in found.items()}
    keyed = [({"method": m, "price": f"{price:g}"}, labels, error) for (m, price), (labels, error) in means.items()]
    return [told | keys | {"labels": f"{labels:.6f}", "error": f"{error:.6f}"} for keys, labels, error in keyed]


def points(rows: Sequence[Row], method: str) -> tuple[list[float], list[float]]:
    """Labels and errors, the least error first, of those that no other one beats in both."""
    each = sorted((float(row["error"]), float(row["labels"])) for row in rows if row["method"] == method)
    best = [one for k, one in enumerate(each) if all(one[1] < other[1] for other in each[:k])]
    return [labels for _, labels in best], [error for error, _ in best]


def table(rows: Sequence[Row]) -> str:
    """The labels that the plan needs for the error of one choice, between its points."""
    plan, lines = points(rows, "plan"), []
    for labels, error in zip(*points(rows, "auto"), strict=True):
        needed = float(np.interp(error, plan[1], plan[0]))
        if labels:
            lines.append([f"{error:.2%}", f"{labels:.3f}", f"{needed:.3f}", f"{1 - needed / labels:+.0%}"])
    least = [f"{plan[1][0]:.2%}", "never reached", f"{plan[0][0]:.3f}", ""]
    head = ["wrong", "labels per image, one choice", "plan", "fewer"]
    one = rows[0]
    told = f"{int(one['n']):,} images; the network alone: {float(one['network']):.1%} wrong"
    return f"{markdown(head, [least, *lines])}\n\n{told}; {origin(rows)}."


def picture(rows: Sequence[Row], file: Path) -> None:
    from l2d.utils.picture import Picture

    figure = Picture(figsize=(5.5, 3.6))
    axes = figure.subplots()
    for method, name in METHODS.items():
        axes.plot(*points(rows, method), marker="o", label=name)
    axes.set(xlabel="people's labels per image", ylabel="share of wrong labels")
    axes.legend()
    figure.savefig(file, bbox_inches="tight")


if __name__ == "__main__":
    chances, votes, truth = read(given_paths(__doc__, "--networks").networks)
    network = mean_network(chances)
    answers = np.column_stack([network.argmax(axis=1), drawn_votes(votes)])
    RESULTS.add(measured(inputs_of(network), answers, truth))
    picture(RESULTS.read(), DOCS / "figures" / "people.png")
