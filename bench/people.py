"""A network first, a person where it is unsure, a second person where they disagree: error against the number of people's labels,
beside one choice. Writes bench/results/people.csv, a picture and a table of docs/human_experts.md.

    python bench/people.py --images CIFAR10 --votes cifar10h-counts.npy    # a minute of CPU time

CIFAR10: a folder with {train,test}_{images,labels}.npy. The network is a perceptron on gradients and colours.
People: three votes of CIFAR-10H per test image, drawn without replacement. Routers of 5,000 test images are judged on the others.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import l2d
from provenance import about
from records import DOCS, MADE, Results, Row, markdown, parser_of, put

PRICES = (0.2, 0.1, 0.05, 0.025, 0.0125, 0.006)  # of a person's label, in errors
PEOPLE, CELLS, ANGLES, EPOCHS = 3, 8, 9, 3
METHODS = {"auto": "one choice", "plan": "plan"}
NAMES = ["network", *(f"person {j + 1}" for j in range(PEOPLE))]
RESULTS = Results("people", "method price", f"labels error network n {MADE}", compared="labels error")


def features(images: np.ndarray) -> np.ndarray:
    """Histograms of gradients in overlapping blocks, and mean colours. uint8 [n, 32, 32, 3] -> [n, F]"""
    n, width = len(images), 32 // CELLS
    values = images.astype(np.float32) / 255
    down, right = np.gradient(values.mean(axis=3), axis=(1, 2))
    angle = np.minimum((np.arctan2(down, right) % np.pi) / np.pi * ANGLES, ANGLES - 1).astype(int)
    size = np.hypot(down, right)
    each = [np.where(angle == k, size, 0).reshape(n, CELLS, width, CELLS, width).sum((2, 4)) for k in range(ANGLES)]
    cells = np.stack(each, axis=-1)
    blocks = np.concatenate([cells[:, i : CELLS - 1 + i, j : CELLS - 1 + j] for i in (0, 1) for j in (0, 1)], axis=-1)
    blocks = np.sqrt(blocks / np.sqrt((blocks**2).sum(axis=-1, keepdims=True) + 0.01))
    colours = values.reshape(n, CELLS, width, CELLS, width, 3).mean((2, 4))
    return np.concatenate([blocks.reshape(n, -1), colours.reshape(n, -1)], axis=1)


def read(folder: Path, split: str) -> tuple[Tensor, Tensor]:
    images, labels = (np.load(folder / f"{split}_{what}.npy") for what in ("images", "labels"))
    found = [features(images[start : start + 1000]) for start in range(0, len(images), 1000)]
    return torch.from_numpy(np.concatenate(found)), torch.from_numpy(labels).long()


def log_chances(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The network's, of the test images [n, 10], and their labels."""
    torch.manual_seed(0)
    (inputs, labels), (new, truth) = read(folder, "train"), read(folder, "test")
    mean, std = inputs.mean(dim=0), inputs.std(dim=0) + 1e-3
    inputs, new = (inputs - mean) / std, (new - mean) / std
    hidden = (nn.Dropout(0.2), nn.Linear(inputs.shape[1], 256), nn.ReLU(), nn.Dropout(0.5))
    network = nn.Sequential(*hidden, nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3, weight_decay=1e-2)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(labels)).split(250):
            loss = nn.functional.cross_entropy(network(inputs[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        return network.eval()(new).log_softmax(dim=1).numpy(), truth.numpy()


def drawn_votes(counts: np.ndarray) -> np.ndarray:
    """Votes of each image, drawn without replacement. [n, classes] -> [n, PEOPLE]"""
    draw = np.random.default_rng(0)
    return np.stack([draw.permutation(np.repeat(np.arange(len(row)), row))[:PEOPLE] for row in counts])


def measured(chances: np.ndarray, answers: np.ndarray, truth: np.ndarray) -> list[Row]:
    """Two halves: learned from one, judged on the other."""
    errors, found = answers != truth[:, None], dict[tuple[str, float], list[tuple[float, float]]]()
    halves, options = np.arange(len(truth)) % 2 == 0, {"progress": False, "method.seconds": 20}
    for method, known in ((method, half) for method in METHODS for half in (halves, ~halves)):
        said, new = ({"answers": answers[rows]} if method == "plan" else {} for rows in (known, ~known))
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
    """Labels and errors, the least error first."""
    each = sorted((float(row["error"]), float(row["labels"])) for row in rows if row["method"] == method)
    return [labels for _, labels in each], [error for error, _ in each]


def table(rows: Sequence[Row]) -> str:
    """The labels that the plan needs for the error of one choice, between its points."""
    plan, lines = points(rows, "plan"), []
    for labels, error in zip(*points(rows, "auto"), strict=True):
        needed = float(np.interp(error, plan[1], plan[0]))
        lines.append([f"{error:.2%}", f"{labels:.2f}", f"{needed:.2f}", f"{1 - needed / labels:+.0%}"])
    least = [f"{plan[1][0]:.2%}", "never reached", f"{plan[0][0]:.2f}", ""]
    lines = [least, *map(list, dict.fromkeys(map(tuple, lines)))]
    head = ["wrong", "labels per image, one choice", "plan", "fewer"]
    one = rows[0]
    about_it = f"`{one['command']}`; {one['machine']}; {one['versions']}; commit {one['commit']}"
    return f"{markdown(head, lines)}\n\n{int(one['n']):,} images; the network alone: {float(one['network']):.1%} wrong; {about_it}."


def picture(rows: Sequence[Row], file: Path) -> None:
    from l2d.utils.picture import Picture

    figure = Picture(figsize=(5.5, 3.6))
    axes = figure.subplots()
    for method, name in METHODS.items():
        axes.plot(*points(rows, method), marker="o", label=name)
    axes.set(xlabel="people's labels per image", ylabel="share of wrong labels")
    axes.legend()
    figure.savefig(file, bbox_inches="tight")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--votes", type=Path, required=True)
    options = parser.parse_args()
    chances, truth = log_chances(options.images)
    answers = np.column_stack([chances.argmax(axis=1), drawn_votes(np.load(options.votes))])
    RESULTS.add(measured(chances, answers, truth))
    put(DOCS / "human_experts.md", "people", table(RESULTS.read()))
    picture(RESULTS.read(), DOCS / "figures" / "people.png")


if __name__ == "__main__":
    main()
