"""Text as tokens, for a router that fine-tunes an encoder. Light: transformers is imported when a text is
read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from l2d.data.text.encoders import Encoder, longer, note_of_cut
from l2d.data.text.pretrained import identity_of, load_tokenizer
from l2d.utils.errors import ParameterError
from l2d.utils.parameters import Annotated, Ge

if TYPE_CHECKING:
    from torch import Tensor

PADDING = -1  # not a token: a tokenizer's own padding may occur within a text, and some tokenizers have none
TEXTS_AT_A_TIME = 1000


class Tokens(Encoder):
    """int32 [n, max_length]: the tokens of each text, cut at max_length, then PADDING. model: whose tokenizer to use: minilm, an
    encoder's name on the hub, or a folder."""

    def __init__(self, *, model: str, max_length: Annotated[int, Ge(8)]) -> None:
        self.model, self.max_length = model, max_length

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        if self.max_length > (most := self._tokenizer.model_max_length):
            raise ParameterError("max_length", f"{self.model} reads {most} tokens at most", self.max_length)
        found, cut = np.full((len(texts), self.max_length), PADDING, dtype=np.int32), 0
        for start in range(0, len(texts), TEXTS_AT_A_TIME):
            chunk = list(texts[start : start + TEXTS_AT_A_TIME])
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
        """It covers the weights too, since the router starts from them."""
        return json.dumps(identity_of(self.model))


def is_tokens(inputs: Tensor) -> bool:
    """Whether inputs (l2d.data.arrays.Arrays) are tokens: images have four dimensions, and features are floats."""
    return inputs.ndim == 2 and not inputs.is_floating_point()


def lengths_of(tokens: Tensor) -> Tensor:
    """int64 [n]: tokens in each row, at least 1, so that no text is empty."""
    return (tokens != PADDING).sum(1).clamp(min=1)
