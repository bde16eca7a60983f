"""Text as numbers: the same for the same text, kept, mended, and refused in one line."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from l2d.data import encoders
from l2d.data.encoders import Embeddings, locate
from l2d.errors import L2DError

transformers = pytest.importorskip("transformers")
WORDS = [
    "what",
    "is",
    "the",
    "capital",
    "of",
    "peru",
    "how",
    "many",
    "apples",
    "does",
    "anna",
    "buy",
    "solve",
    "for",
    "x",
    "history",
    "war",
]
TEXTS = ["what is the capital of peru", "solve for x", "how many apples does anna buy", "solve for x", "war"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT with random weights."""
    folder = tmp_path_factory.mktemp("bert")
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(set(WORDS))]))
    transformers.BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=64, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def embeddings(folder: Path, **changes: int) -> Embeddings:
    return Embeddings(model=str(folder), **{"max_length": 32, "batch_size": 2, **changes})


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


def test_computed_once_kept_and_mended(encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert calls == [5, 2, 5]
    for file in (tmp_path / "embeddings").glob("*.npy"):
        file.write_bytes(file.read_bytes()[:-7])
    assert np.array_equal(first, embeddings(encoder).encode(TEXTS, tmp_path))
    assert len(calls) == 4


def test_long_texts_are_cut_and_memory_is_shared(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = embeddings(encoder).encode([*TEXTS, "war " * 100_000], tmp_path)
    assert np.isfinite(plain).all()
    real = encoders.load_encoder

    class Small(torch.nn.Module):
        def __init__(self, network: torch.nn.Module) -> None:
            super().__init__()
            self.network = network

        def forward(self, input_ids: torch.Tensor, **others: torch.Tensor) -> object:
            if len(input_ids) > 1:
                raise torch.OutOfMemoryError
            return self.network(input_ids=input_ids, **others)

    monkeypatch.setattr(encoders, "load_encoder", lambda *given: (real(*given)[0], Small(real(*given)[1])))
    np.testing.assert_allclose(embeddings(encoder).embed([*TEXTS, "war " * 100_000]), plain, atol=1e-5)
    assert "trying 1" in capsys.readouterr().out


def test_what_cannot_be_loaded_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(L2DError, match=r"router\.reads\.model=.*cannot be loaded"):
        embeddings(empty).encode(TEXTS, tmp_path)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(L2DError, match="needs transformers; pip install"):
        embeddings(empty).embed(TEXTS)
    for changes in ({"max_length": 2}, {"batch_size": 0}):
        with pytest.raises(L2DError, match=f"router.reads.{next(iter(changes))}="):
            embeddings(empty, **changes)


def test_other_weights_in_the_same_folder_are_another_encoder(encoder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    shutil.copytree(encoder, folder)
    before = embeddings(folder).identity()
    assert before == embeddings(encoder).identity()
    encoders.identity_of.cache_clear()
    torch.manual_seed(1)
    transformers.BertModel(transformers.AutoConfig.from_pretrained(folder)).save_pretrained(folder)
    assert embeddings(folder).identity() != before


def test_minilm_is_the_package_or_the_hubs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert locate("minilm") == encoders.MINILM
    assert locate("intfloat/e5-small") == "intfloat/e5-small"
