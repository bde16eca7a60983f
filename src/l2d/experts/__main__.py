"""Make a setup's experts and say how good they are: python -m l2d.experts dataset=cifar10 setup=I."""

import sys
import time

from omegaconf import DictConfig

from l2d.build import make_data
from l2d.cli import run_command
from l2d.datamodule import DeferralData
from l2d.experts.accuracy import Accuracy, accuracies
from l2d.summary import aligned

SPLITS = ("train", "validation", "test")
COLUMNS = ("own", "others", "overall")


def table(data: DeferralData) -> str:
    """Per expert and split, the share of right answers on its own classes, on the others, overall."""
    found = {}
    for name in SPLITS:
        split = getattr(data, name)
        found[name] = accuracies(split.answers, split.labels, data.panel.knows)
    header = ["right answers", *(f"{name}: {column}" for name in SPLITS for column in COLUMNS)]
    rows = [
        [title, *(cell(found[name][k], column) for name in SPLITS for column in COLUMNS)]
        for k, title in enumerate(data.panel.names)
    ]
    return aligned(header, rows)


def cell(accuracy: Accuracy, column: str) -> str:
    value = getattr(accuracy, column)
    return "-" if value is None else f"{value:.2%}"


def job(cfg: DictConfig) -> None:
    begun = time.monotonic()
    try:
        data = make_data(cfg)
    except SystemExit:  # Lightning's answer to Ctrl-C
        raise KeyboardInterrupt from None
    rows = ", ".join(f"{len(getattr(data, name)):,} {name}" for name in SPLITS)
    print(f"{cfg.dataset.name}, setup {cfg.setup.name}, experts={cfg.experts.name}; rows: {rows}\n\n{table(data)}\n")
    kept = f", kept in {data.cache.entry}" if data.cache.entry.exists() else ""
    print(f"{time.monotonic() - begun:.0f} s{kept}")


if __name__ == "__main__":
    if not any(argument.startswith("experts=") for argument in sys.argv[1:]):
        sys.argv.append("experts=trained")
    run_command(job, "Train the experts of a setup, or read them, and say how good they are.", module="l2d.experts")
