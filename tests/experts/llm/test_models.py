"""Models by name: what tells one from another, and one line for what cannot be loaded."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from l2d.experts.llm import models
from l2d.experts.llm.asking import fingerprint_of_texts
from l2d.experts.llm.models import load_language_model, model_fingerprint, parse_model_name
from l2d.utils.errors import L2DError


def test_fingerprints(folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(bytes(100))
    seen = {model_fingerprint(tmp_path), model_fingerprint(folders[0])}
    (tmp_path / "README.md").write_text("words")
    seen.add(model_fingerprint(tmp_path))
    assert len(seen) == 2
    read: list[str] = []
    digest = hashlib.file_digest

    def counted(file: Any, kind: str) -> Any:
        read.append(Path(file.name).name)
        return digest(file, kind)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    for time_ns, place in enumerate((3, 50, 97)):  # the middle as well as the ends
        content = bytearray(100)
        content[place] = 1
        (tmp_path / "model.safetensors").write_bytes(content)
        os.utime(tmp_path / "model.safetensors", ns=(time_ns, time_ns))  # writes may be within one tick of the clock
        seen |= {model_fingerprint(tmp_path), model_fingerprint(tmp_path)}
    assert len(seen) == 5
    assert read == ["model.safetensors"] * 3  # once each, and what has not changed not at all
    assert fingerprint_of_texts(["ab", "c"]) != fingerprint_of_texts(["a", "bc"])


def test_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = parse_model_name("Qwen/Qwen2.5-7B-Instruct@a09a354")
    assert (named.source, named.revision, named.short) == ("Qwen/Qwen2.5-7B-Instruct", "a09a354", "Qwen2.5-7B-Instruct")
    assert named.identity() == {"model": "Qwen/Qwen2.5-7B-Instruct", "revision": "a09a354"}
    assert parse_model_name("gpt2").revision is None
    for wrong in ("./nowhere", "/no/such/folder", "a/b/c", ""):
        with pytest.raises(L2DError, match=r"^models=.*: neither a folder"):
            parse_model_name(wrong)
    (tmp_path / "large").mkdir()
    monkeypatch.chdir(tmp_path / "large")
    assert [parse_model_name(typed).short for typed in (".", "../large/", str(tmp_path / "large"))] == ["large"] * 3


def test_tokenizer_and_model_are_of_the_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def noted(_: object, where: str, revision: str, dtype: torch.dtype | None = None) -> torch.nn.Module:
        asked.append((where, revision, dtype))
        return torch.nn.Dropout()

    monkeypatch.setattr(models, "asked_at_last", noted)
    model, _ = load_language_model(parse_model_name("a/b@r"), "bfloat16", torch.device("cpu"), progress=False)
    assert asked == [("a/b", "r", None), ("a/b", "r", torch.bfloat16)]
    assert not model.training


def test_a_model_too_large(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", fail)
    with pytest.raises(L2DError, match=r"^models=.*large: .*memory.*float32"):
        load_language_model(parse_model_name(str(folders[0])), "float32", torch.device("cpu"), progress=False)


def test_a_folder_that_holds_no_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "nothing"}')
    with pytest.raises(L2DError, match=r"^models=.*cannot be loaded.*HF_HOME"):
        load_language_model(parse_model_name(str(tmp_path)), "float32", torch.device("cpu"), progress=False)
