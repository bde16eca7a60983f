"""Text as tokens, for a router that fine-tunes an encoder. Light to import."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from l2d.data.text.encoders import Encoder, all_tokens, note_of_cut, without_middle
from l2d.data.text.pretrained import identity_of, load_tokenizer
from l2d.utils.errors import ParameterError
from l2d.utils.parameters import Annotated, Ge, ProperShare

if TYPE_CHECKING:
    from torch import Tensor

PADDING = -1  # not a token: a tokenizer's own padding may occur within a text, and some tokenizers have none
TEXTS_AT_A_TIME = 1000


class Tokens(Encoder):
    """int32 [n, max_length]: the tokens of each text, then PADDING. start_share: see `without_middle`."""

    def __init__(self, *, model: str, max_length: Annotated[int, Ge(8)], start_share: ProperShare) -> None:
        self.model, self.max_length, self.start_share = model, max_length, start_share

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        if self.max_length > (most := self._tokenizer.model_max_length):
            raise ParameterError("max_length", f"{self.model} reads {most} tokens at most", self.max_length)
        found, lost = np.full((len(texts), self.max_length), PADDING, dtype=np.int32), []
        for start in range(0, len(texts), TEXTS_AT_A_TIME):
            rows = all_tokens(self._tokenizer, texts[start : start + TEXTS_AT_A_TIME])
            for row, tokens in enumerate(rows, start=start):
                kept = without_middle(tokens, self.max_length, self.start_share)
                found[row, : len(kept)] = kept
                lost.append(len(tokens) - len(kept))
        self.note = note_of_cut(lost, self.max_length)
        return found

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self.model)

    def identity(self) -> str:
        """It covers the weights too, since the router starts from them."""
        return json.dumps(identity_of(self.model))


def is_tokens(inputs: Tensor) -> bool:
    """True if inputs (l2d.data.arrays.Arrays) are tokens: images have four dimensions, and features are floats."""
    return inputs.ndim == 2 and not inputs.is_floating_point()


def lengths_of(tokens: Tensor) -> Tensor:
    """int64 [n]: tokens in each row, at least 1, so that no text is empty."""
    return (tokens != PADDING).sum(1).clamp(min=1)
