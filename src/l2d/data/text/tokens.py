"""Text as tokens, for a router that is an encoder itself and learns how to read it."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.data.text.encoders import longer, note_of_cut, say_once
from l2d.data.text.pretrained import from_pretrained, identity_of, loading, locate
from l2d.utils.errors import L2DError

PADDING = -1  # no token: a token of its own may also occur within a text, and some tokenizers have none
CHUNK = 1000  # texts at a time


class Tokens:
    """int32 [n, max_length]: the tokens of each text, cut at max_length, then PADDING.

    model: whose tokenizer it is: minilm, an encoder's name on the hub, or a folder.
    """

    note: str | None = None

    def __init__(self, *, model: str, max_length: int) -> None:
        if max_length < 8:
            raise L2DError(f"router.reads.max_length={max_length}: must be at least 8")
        self.model, self.max_length = str(model), max_length

    def encode(self, texts: Sequence[str], data_dir: Path) -> np.ndarray:  # noqa: ARG002 (thousands of texts a second)
        found = self.embed(texts)
        say_once(self.note)
        return found

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        if self.max_length > self._tokenizer.model_max_length:
            raise L2DError(
                f"router.reads.max_length={self.max_length}: {self.model} reads {self._tokenizer.model_max_length} tokens at most"
            )
        found, cut = np.full((len(texts), self.max_length), PADDING, dtype=np.int32), 0
        for start in range(0, len(texts), CHUNK):
            chunk = list(texts[start : start + CHUNK])
            rows = self._tokenizer(chunk, truncation=True, max_length=self.max_length)["input_ids"]
            for row, tokens in enumerate(rows, start=start):
                found[row, : len(tokens)] = tokens
            cut += len(longer(self._tokenizer, chunk, [len(tokens) for tokens in rows], self.max_length))
        self.note = note_of_cut(cut, len(texts), self.max_length)
        return found

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self.model)

    def identity(self) -> str:
        """Of the weights too: the router starts from them, so with others it is another run."""
        return json.dumps(identity_of(locate(self.model)))


def is_tokens(inputs: Tensor) -> bool:
    return inputs.ndim == 2 and inputs.dtype == torch.int32


def lengths_of(tokens: Tensor) -> Tensor:
    """int64 [n]: how many of each row are tokens; at least one, so that there is something to look at."""
    return (tokens != PADDING).sum(1).clamp(min=1)


def load_tokenizer(model: str) -> Any:
    with loading("router.model", model) as transformers:
        return from_pretrained(transformers.AutoTokenizer, locate(model))
