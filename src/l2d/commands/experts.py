"""Make a setup's experts and say how good they are: l2d experts dataset=cifar10 setup=I."""

import re
import sys

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from l2d.commands.hydra_command import run_command
from l2d.config import compose, default_choices
from l2d.experts.accuracy import Accuracy, accuracies
from l2d.experts.llm.experts import AskedPanel
from l2d.learning.learner import ended_by_signals
from l2d.routing.build import make_data
from l2d.routing.datamodule import DeferralData
from l2d.runs.summary import aligned
from l2d.utils.errors import L2DError
from l2d.utils.user_errors import MISTAKES

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


def made(data: DeferralData) -> list[str]:
    """How long the making took, and where its result lies; of language models, which are kept one by one, a line for each."""
    if isinstance(data.panel, AskedPanel):
        entries = zip((f"{name}: " for name in data.panel.names), data.panel.entries, strict=True)
        found = [(name, entry.cache, entry.new) for name, entry in entries]
    else:
        found = [("", data.cache, data.expert_seconds >= (data.cache.seconds or 0))]
    return [
        f"{name}{'made' if new else 'made earlier (force=true makes them anew)'}, in {cache.seconds:.0f} s: {cache.entry}"
        for name, cache, new in found
        if cache.seconds is not None
    ]


def job(cfg: DictConfig) -> None:
    if experiment := HydraConfig.get().runtime.choices.get("experiment"):
        raise L2DError(f"experiment={experiment}: is a sweep of l2d.commands.train; say dataset= and setup= here")
    if cfg.dry_run:
        raise L2DError("dry_run: there is nothing to list here; leave it out")
    with ended_by_signals():
        data = make_data(cfg, renew_experts=cfg.force)
    rows = ", ".join(f"{len(getattr(data, name)):,} {name}" for name in SPLITS)
    print(f"{cfg.dataset.name}, setup {cfg.setup.name}, experts={cfg.experts.name}; rows: {rows}\n\n{table(data)}\n")
    for line in made(data):
        print(line)


def main(_: list[str]) -> None:
    if "setup=llm" in sys.argv[1:] and not any(text.startswith("dataset=") for text in sys.argv[1:]):
        sys.argv.append("dataset=mmlu")  # the questions that language models are asked
    chosen = [text.split(",")[0] for text in sys.argv[1:] if re.match(r"(dataset|setup)=", text)]
    flags = any(text.startswith("-") and text not in ("-m", "--multirun") for text in sys.argv[1:])
    if not flags and not any(text.startswith("experts=") for text in sys.argv[1:]):
        try:
            own = compose(chosen).experts.name != default_choices()["experts"]  # data that bring experts of their own
        except MISTAKES:
            own = False  # the command itself says what is wrong
        sys.argv += [] if own else ["experts=trained"]
    run_command(job, "Train the experts of a setup, or read them, and say how good they are.", module="l2d.experts")
