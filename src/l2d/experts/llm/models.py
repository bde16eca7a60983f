"""Causal language models by name: from a folder, from the hub's local cache, or from the hub."""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from l2d.data.text.pretrained import contents, from_pretrained, loading
from l2d.utils.errors import L2DError
from l2d.utils.out_of_memory import is_out_of_memory

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
INSTEAD = "give a local folder, set HF_HOME to a filled cache, or import outcomes that exist (l2d import --help)"


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
        """What the expert is called: the last part."""
        return (self.folder.resolve() if self.folder else Path(self.source)).name

    def identity(self) -> dict[str, Any]:
        """What tells its answers from another's; of a folder the content, not the place."""
        if self.folder is None:
            return {"model": self.source, "revision": self.revision}
        return {"model": fingerprint(self.folder)}


def parse(text: str) -> ModelName:
    """FOLDER, NAME or NAME@REVISION."""
    if text and Path(text).expanduser().is_dir():
        return ModelName(text)
    source, _, revision = text.partition("@")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", source) or source.startswith((".", "-")):
        raise L2DError(
            f"experts.models={text}: no such folder (looked for in {Path.cwd()}), nor a name on the hub, such as"
            " Qwen/Qwen2.5-0.5B-Instruct"
        )
    return ModelName(source, revision or None)


def fingerprint(folder: Path) -> str:
    """Of the config, the tokenizer and the weights in a folder."""
    if not (folder / "config.json").is_file():
        raise L2DError(f"experts.models={folder}: no config.json in it; give a folder that save_pretrained wrote")
    try:
        return hashlib.sha256(json.dumps(contents(folder)).encode()).hexdigest()[:16]
    except OSError as error:
        raise L2DError(f"experts.models={folder}: cannot be read ({error.strerror})") from error


def load(name: ModelName, dtype: str, device: torch.device, *, progress: bool) -> tuple[Any, Any]:
    """(model, tokenizer), the model on its device, ready to be asked. progress: show transformers' own bars."""
    where = str(name.folder or name.source)
    try:
        with loading("experts.models", name.source, instead=INSTEAD, bars=progress) as transformers:
            tokenizer = from_pretrained(transformers.AutoTokenizer, where, revision=name.revision)
            kind = transformers.AutoModelForCausalLM
            model = from_pretrained(kind, where, revision=name.revision, dtype=DTYPES[dtype])
            return model.to(device).eval(), tokenizer
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise L2DError(f"experts.models={name.source}: does not fit into the memory of {device} as {dtype}") from error
