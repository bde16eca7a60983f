"""Trackers: they log a run's curves and results. The only file that uses Weights & Biases."""

import os
import secrets
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from l2d.core.results import RunMetrics
from l2d.runs.summary import result_table, run_figure
from l2d.utils.errors import L2DError, from_extra
from l2d.utils.files import write_text

if TYPE_CHECKING:
    from pytorch_lightning.loggers import Logger


@dataclass(frozen=True)
class RunInfo:
    """The facts that a tracker needs."""

    folder: Path
    group: str  # the cell, without its seed
    name: str
    tags: list[str]  # the choices made
    config: dict[str, Any]


class CsvTracker(AbstractContextManager["CsvTracker"]):
    """Writes the curves into the run folder. Every tracker does at least this."""

    def __init__(self, info: RunInfo) -> None:
        self.info = info

    @classmethod
    def check(cls) -> None:
        """Raise if it cannot work here. Called before anything is loaded."""

    @property
    def loggers(self) -> "list[Logger]":
        from l2d.runs.history import HistoryLogger  # Lightning's, which takes seconds to import

        return [HistoryLogger(self.info.folder / "history.csv")]

    def report(self, metrics: RunMetrics) -> None:
        """Log the final result, once."""

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        """Close the run, whatever happened in it."""


class WandbTracker(CsvTracker):
    """Also logs to W&B: grouped by cell, tagged by choice, resumed under the same id."""

    def __init__(
        self, info: RunInfo, project: str, entity: str | None, mode: Literal["auto", "online", "offline"]
    ) -> None:
        super().__init__(info)
        self.project, self.entity, self.mode = project, entity, mode

    @classmethod
    def check(cls) -> None:
        with from_extra("wandb", "logger=wandb"):
            package = find_spec("wandb")
            if package is None or package.origin is None:  # a folder called wandb is not the package
                raise ImportError("wandb")

    def __enter__(self) -> Self:
        with from_extra("wandb", "logger=wandb"):  # what it imports may be missing
            import wandb  # takes seconds to import, so only where it is asked for

        self.wandb = wandb
        self.run = self._start(self._effective_mode())
        return self

    def _effective_mode(self) -> str:
        """Online needs a login; l2d never prompts for one."""
        wanted = os.environ.get("WANDB_MODE", "auto") if self.mode == "auto" else self.mode
        if wanted not in ("auto", "online"):
            return wanted
        if self.wandb.login(prompt=False, verify=False):
            return "online"
        if wanted == "online":
            raise L2DError("logger.mode=online: not logged in to Weights & Biases; run `wandb login`, or use offline")
        return "offline"

    def _start(self, mode: str) -> Any:
        info, known = self.info, self.info.folder / "wandb_id.txt"
        if not known.exists():
            write_text(known, secrets.token_hex(4))
        arguments: dict[str, Any] = {"group": info.group, "name": info.name, "tags": info.tags, "config": info.config}
        arguments |= {"project": self.project, "entity": self.entity, "dir": str(info.folder), "mode": mode}
        arguments |= {"id": known.read_text(encoding="utf-8").strip(), "resume": "allow"}
        arguments["settings"] = self.wandb.Settings(init_timeout=30, silent=True)
        try:
            return self.wandb.init(**arguments)
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            if mode == "offline" or self.mode == "online":
                raise L2DError(f"logger.mode={self.mode}: Weights & Biases did not start ({reason})") from error
            print(f"Weights & Biases cannot be reached ({reason}); logging offline", file=sys.stderr)
            return self.wandb.init(**(arguments | {"mode": "offline"}))

    @property
    def loggers(self) -> "list[Logger]":
        from pytorch_lightning.loggers import WandbLogger

        return [*super().loggers, WandbLogger(experiment=self.run)]

    def report(self, metrics: RunMetrics) -> None:
        from PIL import Image

        header, rows = result_table(metrics)
        content = BytesIO()
        run_figure(metrics).savefig(content, format="png")
        table, picture = self.wandb.Table(columns=header, data=rows), self.wandb.Image(Image.open(content))
        self.run.log({"test/table": table, "test/deferral": picture})
        for key in ("deferral_loss", "error_rate", "mean_price"):
            self.run.summary[f"test/{key}"] = getattr(metrics, key)

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self.run.finish(exit_code=0 if kind is None else 1)
        if self.run.settings.mode == "offline":
            upload = f"wandb sync {self.info.folder}/wandb/offline-run-*"
            print(f"Weights & Biases: logged offline; `{upload}` uploads it", file=sys.stderr)
