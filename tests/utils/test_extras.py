import pytest

from l2d.utils.errors import L2DError
from l2d.utils.extras import from_extra


def test_the_extra_is_named() -> None:
    with pytest.raises(L2DError, match=r"^logger=wandb needs more packages: pip install 'l2d\[wandb\]'$"):  # noqa: SIM117
        with from_extra("wandb", "logger=wandb"):
            import no_such_package  # noqa: F401
    with from_extra("wandb", "logger=wandb"):
        import json  # noqa: F401
