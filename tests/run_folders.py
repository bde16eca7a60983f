"""Folders of finished runs as training leaves them, with made-up numbers, for what reads them."""

from pathlib import Path
from typing import Any

import numpy as np
import yaml

from l2d.analysis.curve.points import Floats
from l2d.core.results import Baselines, ExpertAlone, RunMetrics
from l2d.utils.files import write_json
from tests.metrics_example import example_metrics, example_score

SHARES = [0.5, 0.3, 0.2]
# Six queries, three models: right on 5, 3 and 2 of them.
ERRORS = np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0], [0, 1, 1], [1, 0, 1], [0, 1, 0]]).astype(np.float64)
PRICES = np.array([1.0, 0.6, 0.1])


def finished_folder(folder: Path, metrics: RunMetrics, config: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    write_json(folder / "metrics.json", metrics.as_json())
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


def baselines_of(best_single: float) -> Baselines:
    first = [1.0, 0.0, 0.0]
    return Baselines(
        oracle=example_score(0.0, [0.6, 0.3, 0.1]),
        best_single=example_score(best_single, first),
        random=example_score(0.6, [1 / 3] * 3),
        majority=example_score(0.4, first),
    )


def write_run(runs: Path, cell: str, seed: int, loss: float, config: Any = None, **changes: Any) -> Path:
    """A run of cell dataset/setup/experts/cost/method/variant, over three experts. config: beside the method and the seed."""
    metrics = example_metrics(
        loss,
        p=3,
        **{
            "ratios": SHARES,
            "baselines": baselines_of(0.4),
            "confusion": [[5, 1, 0], [0, 3, 0], [0, 0, 1]],
            "experts": [ExpertAlone(f"expert {k + 1}", error, 0.0, 0.01) for k, error in enumerate((0.4, 0.7, 0.8))],
            "calibration": [[0.5, 0.2, 0.25], [0.5, 0.8, 0.7]],
            **changes,
        },
    )
    name = cell.split("/")[4]
    said = {"method": {"name": name} | ({"rho": 1} if name == "tdef" else {}), "seed": seed, **(config or {})}
    folder = finished_folder(runs / cell / f"seed={seed}", metrics, said)
    (folder / "history.csv").write_text("epoch,step,val/deferral_loss\n1,10,0.5\n2,20,0.3\n")
    return folder


def write_small_table(runs: Path) -> None:
    """SVHN, setup I: three seeds of tdef, two of mild."""
    for seed, loss in enumerate([0.05, 0.06, 0.07]):
        write_run(runs, "svhn/I/synthetic/error/tdef/aaaa", seed, loss)
    for seed, loss in enumerate([0.02, 0.04]):
        write_run(runs, "svhn/I/synthetic/error/mild/bbbb", seed, loss)


def write_priced_run(
    runs: Path,
    scale: float,
    decisions: list[int],
    seed: int = 0,
    method: str = "mild",
    errors: Floats = ERRORS,
    prices: Floats = PRICES,
    scores: Floats | None = None,
    expected: Floats | None = None,
    **cost: Any,
) -> Path:
    """A run of cost.scale=scale. prices: the list's [p], or each row's [N, p]. cost: more keys of it."""
    p = errors.shape[1]
    folder = runs / "q/own/table/error_plus_cost" / method / f"{int(1000 * scale):08x}" / f"seed={seed}"
    listed = {"prices": prices.tolist()} if prices.ndim == 1 else {}
    said = {"name": "error_plus_cost", **listed, "scale": scale, **cost}
    config = {"dataset": {"name": "q"}, "cost": said, "method": {"name": method}, "seed": seed}
    shares = [decisions.count(k) / len(decisions) for k in range(p)]
    price = scale * float(np.dot(shares, prices)) if prices.ndim == 1 else 0.0
    example = example_metrics(p=p)
    known = vars(example.capabilities) | {
        "takes_prices_later": method == "cost_regression",
        "estimates_costs": method == "one_vs_all",
    }
    metrics = example_metrics(
        p=p,
        prices=(scale * (prices if prices.ndim == 1 else prices.mean(axis=0))).tolist(),
        experts=[ExpertAlone(f"model {k}", 0.0, 0.0, 0.01) for k in range(p)],
        validation=example_score(0.25 + price, shares, price),
        capabilities=type(example.capabilities)(**known),
    )
    finished_folder(folder, metrics, config)
    extra: dict[str, Any] = {} if expected is None else {"expected_errors": expected}
    np.savez_compressed(
        folder / "test.npz",
        costs=errors + scale * prices,
        prices=scale * prices,
        decisions=np.array(decisions),
        scores=np.zeros((len(errors), p)) if scores is None else scores,
        **extra,
    )
    return folder


def write_price_curve(runs: Path) -> None:
    """Two seeds: free of charge all goes to the strong model, or all but one; at the list's prices two to each; then to the last."""
    write_priced_run(runs, 0.0, [0] * 6)
    write_priced_run(runs, 0.0, [0, 0, 0, 0, 1, 0], seed=1)
    write_priced_run(runs, 1.0, [0, 1, 2, 0, 1, 2])
    write_priced_run(runs, 1.0, [0, 1, 2, 0, 1, 2], seed=1)
    write_priced_run(runs, 3.0, [2] * 6)
