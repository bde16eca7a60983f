"""Causal language models by name: from a folder, from the hub's local cache, or from the hub. Light to import."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from l2d.data.text.pretrained import asked_at_last, contents, loading
from l2d.utils.errors import ParameterError

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


def load_language_model(name: ModelName, dtype: str, device: torch.device, *, progress: bool) -> tuple[Any, Any]:
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
