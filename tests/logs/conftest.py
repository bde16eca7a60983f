import pytest
from tests.router.finished import Untrained


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Untrained:
    from tests.server.helpers import text_run

    return text_run(tmp_path_factory.mktemp("run"))
