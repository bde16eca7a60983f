from importlib.util import find_spec

import pytest
from tests.router.finished import Untrained

collect_ignore_glob = [] if find_spec("fastapi") else ["test_*.py"]  # the extra `serve`


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Untrained:
    from tests.server.helpers import text_run

    return text_run(tmp_path_factory.mktemp("run"))
