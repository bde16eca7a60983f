"""Text by the words that tell texts apart: TF-IDF and SVD."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

import l2d
from l2d.data.text import encoders
from l2d.data.text.words import NUMBERS, Words
from l2d.utils.errors import ParameterError

TEXTS = [
    "solve the integral of x",
    "tell me a story",
    "integrate x from 0 to 1",
    "a story of the sea",
    "the sea, the sea",
] * 3


def test_it_is_scikit_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("l2d.data.text.words.COLUMNS", 3)
    options = {"alternate_sign": False, "norm": None, "ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"}
    counts = HashingVectorizer(n_features=NUMBERS, **options)
    weights = TfidfTransformer(sublinear_tf=True).fit(counts.transform(TEXTS))
    seen = weights.transform(counts.transform(TEXTS))
    learned = TruncatedSVD(3, random_state=0).fit(seen)
    words = Words().fitted(TEXTS)
    np.testing.assert_allclose(words.embed(TEXTS), learned.transform(seen), atol=1e-5)
    new = ["a sea of x", "unheard"]
    np.testing.assert_allclose(words.embed(new), learned.transform(weights.transform(counts.transform(new))), atol=1e-5)
    monkeypatch.setattr(encoders, "CHUNK", 4)
    monkeypatch.setattr("l2d.data.text.words.CHUNK", 4)
    np.testing.assert_allclose(Words().fitted(TEXTS).embed(TEXTS), words.embed(TEXTS), atol=1e-5)


def test_few_texts_have_few_directions() -> None:
    assert Words().fitted(TEXTS[:3]).embed(TEXTS).shape == (15, 2)
    assert Words().fitted(TEXTS[:1]).embed(TEXTS).shape == (15, 1)
    with pytest.raises(ParameterError):
        Words().embed(TEXTS)


def test_what_it_learned_is_restored() -> None:
    words = Words().fitted(TEXTS)
    again = Words().restored({name: array.copy() for name, array in words.state.items()})
    np.testing.assert_array_equal(again.embed(["a new sea"]), words.embed(["a new sea"]))


@pytest.mark.slow
def test_a_router_keeps_it(tmp_path: Path) -> None:
    """Stories to the second expert. A saved router reads new texts as the trained one does."""
    texts = [f"{'integrate x from 0 to' if place % 2 else 'tell a story about'} {place}" for place in range(120)]
    errors = np.array([[0, 1] if "integrate" in text else [1, 0] for text in texts])
    router = l2d.fit(texts, errors=errors, method="linear", options={"progress": False})
    new = ["integrate x from 0 to 999", "tell a story about 999"]
    assert [choice.expert for choice in router.route(new)] == ["expert 1", "expert 2"]
    router.save(tmp_path)
    again = l2d.Router.load(tmp_path)
    assert [one.expected_errors for one in again.route(new)] == [one.expected_errors for one in router.route(new)]
