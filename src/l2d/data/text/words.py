"""Text as numbers, learned from the training texts without any download. Light to import."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from l2d.data.text.encoders import CHUNK, Encoder, in_chunks
from l2d.utils.errors import ParameterError

NUMBERS = 8_192  # of words and pairs of words
COLUMNS = 64  # at most


class Words(Encoder):
    """TF-IDF of words and pairs of words (hashed), in the directions in which the training texts differ most (SVD)."""

    learns = True

    def __init__(self) -> None:
        self.rarity = np.zeros(0, dtype=np.float32)  # of each number: the logarithm in IDF
        self.directions = np.zeros((0, 0), dtype=np.float32)  # [columns, numbers]

    def fitted(self, texts: Sequence[str]) -> "Words":
        from sklearn.decomposition import TruncatedSVD

        counts = counted_words(texts)
        with_it = np.bincount(counts.indices, minlength=counts.shape[1])
        rarity = (np.log((1 + len(texts)) / (1 + with_it)) + 1).astype(np.float32)
        columns = max(1, min(COLUMNS, len(texts) - 1))
        directions = np.zeros((1, len(rarity)), np.float32)
        if len(texts) > 1:
            directions = TruncatedSVD(columns, random_state=0).fit(weighed(counts, rarity)).components_
        return self.restored({"rarity": rarity, "directions": directions.astype(np.float32)})

    @property
    def state(self) -> dict[str, np.ndarray]:
        return {"rarity": self.rarity, "directions": self.directions}

    def restored(self, state: Mapping[str, np.ndarray]) -> "Words":
        found = Words()
        found.rarity, found.directions, found.progress = state["rarity"], state["directions"], self.progress
        return found

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        if not len(self.rarity):
            raise ParameterError("", "has not learned from training texts yet")
        return np.asarray(weighed(counted_words(texts), self.rarity) @ self.directions.T)


def counted_words(texts: Sequence[str]) -> Any:
    """A sparse matrix of how often each number of a word or a pair occurs in each text."""
    from scipy.sparse import vstack

    count = word_counter().transform
    return count(texts) if len(texts) <= CHUNK else vstack([*in_chunks(count, texts)])


@cache
def word_counter() -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    options: Any = {"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b", "dtype": np.float32}
    return HashingVectorizer(n_features=NUMBERS, alternate_sign=False, norm=None, **options)


def weighed(counts: Any, rarity: np.ndarray) -> Any:
    """1 + log count, times rarity, each row scaled to length 1; in the place of the counts. normalize() would check longer."""
    from sklearn.utils.sparsefuncs_fast import inplace_csr_row_normalize_l2

    counts.data = (np.log(counts.data) + 1) * rarity[counts.indices]
    inplace_csr_row_normalize_l2(counts)
    return counts
