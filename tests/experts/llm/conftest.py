from pathlib import Path
from typing import Any

import pytest
from tests.experts.llm.tiny_models import make_model, make_tokenizer

from l2d.experts.llm import scoring


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two models of one tokenizer, as save_pretrained leaves them."""
    found = []
    for seed, name in enumerate(("large", "small")):
        folder = tmp_path_factory.mktemp("models") / name
        make_model(seed).save_pretrained(folder)
        make_tokenizer(chat=name == "large").save_pretrained(folder)
        found.append(folder)
    return found


@pytest.fixture(scope="session")
def model() -> Any:
    return make_model(0)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "PART", 5)
