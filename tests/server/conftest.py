from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.router.finished import Untrained

collect_ignore_glob = [] if find_spec("fastapi") else ["test_*.py"]  # the extra `serve`


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Untrained:
    from tests.server.helpers import text_run

    return text_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="session")
def ranking(run: Untrained) -> tuple[str, ...]:
    """The run's ranking of the first prompt."""
    from tests.server.helpers import PROMPTS

    from l2d.router.router import Router

    return Router.load(run.path).route(PROMPTS[:1])[0].ranking


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.sqlite"


@pytest.fixture
def servers() -> Iterator[dict[str, Any]]:
    """A FakeUpstream for each expert."""
    from tests.server.helpers import EXPERTS, FakeUpstream

    found = {name: FakeUpstream(name) for name in EXPERTS}
    yield found
    for server in found.values():
        server.close()
