"""Causal language models by name: from a folder, from the hub's local cache, or from the hub."""

import hashlib
import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from l2d.errors import L2DError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# What a model's answers follow from, among the files of its folder.
TELLING = (".json", ".txt", ".model", ".jinja", ".safetensors", ".bin")
LARGE = 16 * 2**20  # bytes: of larger files the size and both ends are looked at
END = 2**20
INSTEAD = (
    "give a local folder, set HF_HOME to a filled cache, or import outcomes that exist"
    " (python -m l2d.data.importers --help)"
)


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
    files = sorted(file for file in folder.iterdir() if file.suffix in TELLING and file.is_file())
    if not any(file.name == "config.json" for file in files):
        raise L2DError(f"experts.models={folder}: no config.json in it; give a folder that save_pretrained wrote")
    digest = hashlib.sha256()
    try:
        for file in files:
            size = file.stat().st_size
            digest.update(f"{file.name}\0{size}\0".encode())
            with file.open("rb") as content:
                if size <= LARGE:
                    digest.update(content.read())
                    continue
                digest.update(content.read(END))
                content.seek(-END, 2)
                digest.update(content.read())
    except OSError as error:
        raise L2DError(f"experts.models={folder}: cannot be read ({error.strerror})") from error
    return digest.hexdigest()[:16]


def load(name: ModelName, dtype: str, device: torch.device, *, progress: bool) -> tuple[Any, Any]:
    """(model, tokenizer), the model on its device, ready to be asked. progress: show transformers' own bars."""
    transformers = import_transformers()
    if not progress:
        transformers.utils.logging.disable_progress_bar()
    try:
        tokenizer = _from_pretrained(transformers.AutoTokenizer, name)
        model = _from_pretrained(transformers.AutoModelForCausalLM, name, **{dtype_key(transformers): DTYPES[dtype]})
    except (OSError, ValueError, ImportError, KeyError) as error:
        reason = " ".join(str(error).split()).partition(". ")[0][:200].rstrip(". ")
        raise L2DError(f"experts.models={name.source}: cannot be loaded ({reason}); {INSTEAD}") from error
    try:
        return model.to(device).eval(), tokenizer
    except torch.OutOfMemoryError as error:
        raise L2DError(f"experts.models={name.source}: does not fit into the memory of {device} as {dtype}") from error


def import_transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise L2DError("experts=llm: needs transformers; pip install 'l2d[llm]'") from error
    return transformers


def dtype_key(transformers: Any) -> str:
    """What from_pretrained calls it: renamed in 4.56."""
    major, minor = map(int, transformers.__version__.split(".")[:2])
    return "dtype" if (major, minor) >= (4, 56) else "torch_dtype"


def _from_pretrained(factory: Any, name: ModelName, **options: Any) -> Any:
    """What is on this machine is not looked for elsewhere."""
    options = {**options, "revision": name.revision or "main"}
    if name.folder is not None:
        return factory.from_pretrained(str(name.folder), local_files_only=True, **options)
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    hub.setLevel(logging.ERROR)  # it announces each of its tries; the last one's failure is said once, by us
    try:
        try:
            return factory.from_pretrained(name.source, local_files_only=True, **options)
        except (OSError, ValueError):
            return factory.from_pretrained(name.source, **options)
    finally:
        hub.setLevel(level)
