"""Text as tokens: what the tokenizer says of each text alone, and nothing that could be taken for a token after it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny_encoders import write_encoder, write_tokenizer

from l2d.data.text import tokens
from l2d.data.text.pretrained import identity_of, load_tokenizer
from l2d.data.text.tokens import PADDING, Tokens, is_tokens, lengths_of
from l2d.utils.errors import ParameterError

pytest.importorskip("transformers")
LONG: dict[str, Any] = {"max_length": 8, "start_share": 0.25}
TEXTS = ["what is the capital of peru", "solve for x", "zyx", "war", "how many apples does anna buy"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("bert"))


def test_tokens_of_each_text_alone(encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "TEXTS_AT_A_TIME", 2)
    reader = Tokens(model=str(encoder), **LONG)
    found = reader.encode([*TEXTS, "war " * 25_000], tmp_path)
    assert found.dtype == np.int32
    assert found.shape == (6, 8)
    tokenizer = load_tokenizer(str(encoder))
    for text, row in zip(TEXTS, found.tolist(), strict=False):
        alone = tokenizer(text)["input_ids"]
        assert row == [*alone, *[PADDING] * (8 - len(alone))]
    assert found[1].tolist() == [2, 16, 17, 18, 3, -1, -1, -1]  # [CLS] solve for x [SEP]
    assert found[5].tolist() == [2, *[found[3, 1]] * 6, 3]
    assert lengths_of(torch.from_numpy(found)).tolist() == [8, 5, 3, 3, 8, 8]
    assert is_tokens(torch.from_numpy(found))
    assert not list(tmp_path.iterdir())  # nothing is kept
    assert reader.embed([]).shape == (0, 8)
    # int32 [n, L]; neither features nor images.
    assert is_tokens(torch.zeros(3, 8, dtype=torch.int32))
    assert not is_tokens(torch.zeros(3, 8))
    assert not is_tokens(torch.zeros(3, 8, 8, 1, dtype=torch.uint8))


def test_a_tokenizer_needs_no_token_to_pad_with(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, pad=False)
    assert Tokens(model=str(tmp_path), **LONG).embed(["war"])[0, 3:].tolist() == [PADDING] * 5


def test_bad_lengths(encoder: Path) -> None:
    with pytest.raises(ParameterError, match=r"^max_length=65: .* 64 tokens"):
        Tokens(model=str(encoder), max_length=65, start_share=0.25).embed(["war"])


def test_the_files_of_the_model_are_its_identity(encoder: Path) -> None:
    assert Tokens(model=str(encoder), **LONG).identity() == json.dumps(identity_of(str(encoder)))
