"""Language models as experts on multiple-choice questions: each answers with the letter that it finds likeliest. Their names are
those of a folder, or of the hub. Light to import."""

import hashlib
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from l2d.data.arrays import Panel
from l2d.data.text.pretrained import asked_at_last, contents, loading
from l2d.experts.request import ExpertRequest, Experts
from l2d.utils.errors import ParameterError
from l2d.utils.parameters import Count, Letters, Names, Seed

if TYPE_CHECKING:
    import torch

SCORING = 2  # raise it when the same model and questions give different answers than before
INSTEAD = "give a local folder, set HF_HOME to a filled cache, or import existing outcomes (l2d import --help)"


@dataclass(frozen=True)
class ModelName:
    """source: a name on the hub or a folder. revision: a branch, tag or commit on the hub."""

    source: str
    revision: str | None = None

    @property
    def folder(self) -> Path | None:
        path = Path(self.source).expanduser()
        return path if path.is_dir() else None

    @property
    def short(self) -> str:
        """The expert's name: the last part."""
        return (self.folder.resolve() if self.folder else Path(self.source)).name

    def identity(self) -> dict[str, Any]:
        """All that its answers depend on: the content of a folder, not its place; or a name and revision on the hub."""
        if self.folder is None:
            return {"model": self.source, "revision": self.revision}
        return {"model": model_fingerprint(self.folder)}


def parse_model_name(text: str) -> ModelName:
    """FOLDER, NAME or NAME@REVISION."""
    if text and Path(text).expanduser().is_dir():
        return ModelName(text)
    source, _, revision = text.partition("@")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", source) or source.startswith((".", "-")):
        problem = f"neither a folder (in {Path.cwd()}) nor a name on the hub, such as Qwen/Qwen2.5-0.5B-Instruct"
        raise ParameterError("models", problem, text)
    return ModelName(source, revision or None)


def model_fingerprint(folder: Path) -> str:
    if not (folder / "config.json").is_file():
        raise ParameterError("models", "no config.json in it; give a folder that save_pretrained wrote", folder)
    return hashlib.sha256(json.dumps(contents(folder)).encode()).hexdigest()[:16]


def load_language_model(name: ModelName, dtype: str, device: "torch.device", *, progress: bool) -> tuple[Any, Any]:
    """(model, tokenizer), ready to be asked. progress: show transformers' bars, on a terminal."""
    import torch

    from l2d.core.out_of_memory import is_out_of_memory

    where, bars = str(name.folder or name.source), progress and sys.stderr.isatty()
    try:
        with loading("models", name.source, instead=INSTEAD, bars=bars) as transformers:
            tokenizer = asked_at_last(transformers.AutoTokenizer.from_pretrained, where, name.revision)
            load = transformers.AutoModelForCausalLM.from_pretrained
            model = asked_at_last(load, where, name.revision, dtype=getattr(torch, dtype))
            return model.to(device).eval(), tokenizer
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise ParameterError("models", f"does not fit into the memory of {device} as {dtype}", name.source) from error


class LLMExperts(Experts):
    """The keys are explained in conf/experts/llm.yaml. Nothing is random: the seed only draws the validation split."""

    def __init__(
        self,
        *,
        seed: Seed | None,
        models: Names,
        letters: Letters,
        chat: bool,
        dtype: Literal["auto", "float32", "bfloat16", "float16"],
        batch_size: Count,
        table: str | None,
    ) -> None:
        self.seed, self.chat, self.dtype, self.batch_size, self.table = seed, chat, dtype, batch_size, table
        self.models, self.letters = [parse_model_name(model) for model in models], [str(letter) for letter in letters]
        self.names = tuple(model.short for model in self.models)
        if len({*self.letters}) < len(letters):
            raise ParameterError("letters", "must all be different", self.letters)
        if twice := sorted({name for name in self.names if self.names.count(name) > 1}):
            raise ParameterError("models", f"more than one is called {', '.join(twice)}; rename a folder")
        if table is not None and Path(table).suffix.lower() not in (".csv", ".parquet"):
            raise ParameterError("table", "must end in .csv or .parquet", table)

    @staticmethod
    def expert_names(coverage: Sequence[float] | None, *, models: Sequence[str], **_: object) -> tuple[str, ...]:  # noqa: ARG004
        return tuple(parse_model_name(model).short for model in models)

    def identity(self) -> str:
        """Changes when a folder holds other weights than before, so that answers may differ. Nothing is loaded."""
        return json.dumps([SCORING, *(model.identity() for model in self.models)])

    def panel(self, request: ExpertRequest) -> Panel:
        from l2d.experts.llm.asking import ask_panel

        return ask_panel(self, request)
