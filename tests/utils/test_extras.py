import pytest

from l2d.utils.errors import L2DError
from l2d.utils.extras import from_extra


@pytest.mark.parametrize("error", [ModuleNotFoundError, ImportError])  # missing, or too old to have what is asked of it
def test_the_extra_is_named(error: type[ImportError]) -> None:
    said = r"^logger=wandb needs more packages: pip install 'l2d\[wandb\]'$"
    with pytest.raises(L2DError, match=said), from_extra("wandb", "logger=wandb"):
        raise error("wandb")
    with from_extra("wandb", "logger=wandb"):
        import json  # noqa: F401
