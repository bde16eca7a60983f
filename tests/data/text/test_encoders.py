"""Text as numbers: the same for the same text, kept, and refused in one line."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from joblib import parallel_config
from sklearn.feature_extraction.text import HashingVectorizer
from tests.tiny_encoders import WORDS, write_encoder

from l2d.data.text import encoders
from l2d.data.text.encoders import CHUNK, HASHES, Embeddings, Hashed, all_tokens, note_of_cut, without_middle
from l2d.utils.errors import L2DError, ParameterError

transformers = pytest.importorskip("transformers")
TEXTS = ["what is the capital of peru", "solve for x", "how many apples does anna buy", "solve for x", "war"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("bert"))


def embeddings(folder: Path, **changes: Any) -> Embeddings:
    return Embeddings(model=str(folder), **{"max_length": 32, "start_share": 0.25, "batch_size": 2, **changes})


ODD = st.text(st.sampled_from("aAbΣßİ \n\t\u2003'-_1é"), min_size=1)


@given(st.lists(ODD | st.text(max_size=9), min_size=1, max_size=5))
def test_hashed_texts_are_scikit_learns(texts: list[str]) -> None:
    """To the last bit, also in chunks: hashes of words and pairs of words, then of pieces of words."""
    kinds = ({"analyzer": "word", "ngram_range": (1, 2)}, {"analyzer": "char_wb", "ngram_range": (3, 5)})
    parts = [HashingVectorizer(n_features=HASHES, dtype=np.float32, **kind).transform(texts) for kind in kinds]
    expected = np.concatenate([part.toarray() for part in parts], axis=1)
    for chunk in (CHUNK, 2):
        with patch.object(encoders, "CHUNK", chunk), parallel_config("sequential"):
            found = Hashed().embed(texts)
        assert found.dtype == np.float32
        assert found.shape[1] == 512
        assert np.array_equal(found, expected)


def test_embeddings_are_the_mean_of_the_states(encoder: Path, tmp_path: Path) -> None:
    found = embeddings(encoder).encode(TEXTS, tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
    network = transformers.AutoModel.from_pretrained(encoder).eval()
    for text, row in zip(TEXTS, found, strict=True):  # one at a time: nothing is padded
        with torch.inference_mode():
            states = network(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        mean = states.mean(0)
        np.testing.assert_allclose(row, mean / mean.norm(), atol=1e-5)
    assert found.dtype == np.float32
    assert np.array_equal(found[1], found[3])


def test_equal_texts_are_embedded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def lengths(batch: list[str], lost: dict[str, int]) -> np.ndarray:
        asked.append(batch)
        lost.update(dict.fromkeys(batch, 0))
        return np.array([[len(text)] for text in batch])

    reader = Embeddings(model="none", max_length=8, start_share=0.25, batch_size=2)
    monkeypatch.setattr(reader, "_mean_states", lengths)
    assert reader.embed(["xx", "war", "x", "xx"]).tolist() == [[2], [3], [1], [2]]
    assert asked == [["x", "xx"], ["war"]]


def test_computed_once_and_kept(encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    real = Embeddings.embed

    def counted(self: Embeddings, texts: Sequence[str]) -> np.ndarray:
        calls.append(len(texts))
        return real(self, texts)

    monkeypatch.setattr(Embeddings, "embed", counted)
    first = embeddings(encoder).encode(TEXTS, tmp_path)
    assert np.array_equal(first, embeddings(encoder, batch_size=4).encode(TEXTS, tmp_path))
    assert calls == [5]
    embeddings(encoder).encode(TEXTS[:2], tmp_path)
    embeddings(encoder, max_length=8).encode(TEXTS, tmp_path)
    embeddings(encoder, start_share=0.5).encode(TEXTS, tmp_path)
    assert calls == [5, 2, 5, 5]
    assert np.array_equal(first[::-1], embeddings(encoder).encode(TEXTS[::-1], tmp_path))


@given(st.integers(0, 40), st.integers(8, 32), st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_what_a_long_text_keeps(length: int, most: int, share: float) -> None:
    """Place by place: kept while it is among the first ones, or among so many last ones that `most` are kept in all."""
    start = max(1, int(most * share))
    kept = [place for place in range(length) if length <= most or place < start or length - place <= most - start]
    assert list(without_middle(range(length), most, share)) == kept
    assert len(kept) == min(length, most)
    assert without_middle(range(12), 8, 0.25) == [0, 1, 6, 7, 8, 9, 10, 11]  # a quarter of 8, and the end


def test_the_note_counts_texts_and_tokens() -> None:
    note = note_of_cut([0, 3, 0, 1_200], 256) or ""
    assert [part for part in ("2 of 4 ", " 256 ", "max_length", " 602 ", " 1,200 ") if part not in note] == []
    assert note_of_cut([0, 0], 256) is note_of_cut([], 256) is None


def test_the_question_at_the_end_of_a_long_text_is_read(encoder: Path) -> None:
    """The mean over the states of [CLS] history, then of the last five words and [SEP]; the war between is lost."""
    questions = ("what is the capital of", "how many apples does anna")
    texts = [f"history {'war ' * 400}{question}" for question in questions]
    found = embeddings(encoder, max_length=8).embed(texts)
    tokenizer, network = encoders.load_encoder(str(encoder))
    for text, row in zip(texts, found, strict=True):
        short = f"history {' '.join(text.split()[-5:])}"
        with torch.inference_mode():
            mean = network.eval()(**tokenizer(short, return_tensors="pt")).last_hidden_state[0].mean(0)
        np.testing.assert_allclose(row, mean / mean.norm(), atol=1e-5)
    assert np.abs(found[0] - found[1]).max() > 1e-3


def test_all_tokens(encoder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Also of a tokenizer that was saved while it cut and padded. transformers does not warn of its length."""
    tokenizer, _ = encoders.load_encoder(str(encoder))
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)  # else caplog does not hear it
    tokenizer("war", truncation=True, max_length=8, padding="max_length")
    assert [len(row) for row in all_tokens(tokenizer, ["war " * 600, "war"])] == [602, 3]
    assert not caplog.records


def test_other_weights_in_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = tmp_path / "model.safetensors"
    monkeypatch.setattr(Embeddings, "embed", lambda _, texts: np.array([[len(weights.read_text())]] * len(texts)))
    for content, found in (("a", 1), ("bb", 2), ("a", 1)):
        weights.write_text(content)
        assert embeddings(tmp_path).encode(["x", "y"], tmp_path).tolist() == [[found]] * 2
    assert len([*(tmp_path / "embeddings").glob("*.npy")]) == 2


ON_A_CPU = "[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory: you tried …"


@pytest.mark.parametrize("error", [RuntimeError(ON_A_CPU), torch.OutOfMemoryError()], ids=["cpu", "gpu"])
def test_out_of_memory(error: Exception, encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key to lower is named; another error stays as it is."""
    for raised, expected in ((error, ParameterError), (RuntimeError("size"), RuntimeError)):
        monkeypatch.setattr(Embeddings, "_mean_states", Mock(side_effect=raised))
        with pytest.raises(expected, match="batch_size=2: out of memory" if raised is error else "size"):
            embeddings(encoder).embed(TEXTS)


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    """A tiny GPT-2 whose tokenizer has an end of text and nothing to pad with."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {word: place for place, word in enumerate(["<end>", *sorted(set(WORDS))])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<end>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>").save_pretrained(tmp_path)
    torch.manual_seed(0)
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(vocab_size=64, n_embd=16, n_layer=2, n_head=2, n_positions=64, **ends)
    transformers.GPT2Model(config).save_pretrained(tmp_path)
    return tmp_path


def test_without_a_padding_token(gpt2: Path) -> None:
    """The same numbers as of each text alone."""
    alone = np.concatenate([embeddings(gpt2).embed([text]) for text in TEXTS])
    np.testing.assert_allclose(embeddings(gpt2, batch_size=5).embed(TEXTS), alone, atol=1e-5)


def test_models_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(L2DError, match=r"^model=.*cannot be loaded"):
        embeddings(tmp_path).encode(TEXTS, tmp_path)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(L2DError, match=r"^model=.*needs transformers"):
        embeddings(tmp_path).embed(TEXTS)


def test_cut_texts_are_counted_once(encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A text is [CLS], its words, [SEP]: six words fill 8 tokens and seven are cut. Equal texts are embedded once and counted twice."""
    encoders.say_once.cache_clear()
    six, seven = "war " * 6, "war " * 7
    reader = embeddings(encoder, max_length=8)
    reader.embed(["war", six])
    assert reader.note is None
    for _ in range(2):  # the second time it is kept
        reader.encode([seven, "war", six, "x " * 510, seven], tmp_path)
    assert capsys.readouterr().err == f"{reader.note}\n"
    assert reader.note == note_of_cut([1, 0, 0, 504, 1], 8)
    embeddings(encoder, max_length=8).embed([seven])  # whoever asks a router prints the note himself
    assert not capsys.readouterr().err
    assert Hashed().note is None
