"""`import l2d` hands out its few names without importing what is behind them."""

import subprocess
import sys

import pytest

import l2d
from l2d.router.router import Router

TIMED = """
import sys, time
begun = time.perf_counter()
import l2d
print(time.perf_counter() - begun)
loaded = {"torch", "numpy", "hydra", "omegaconf", "yaml"} & {*sys.modules}
assert not loaded, loaded
assert l2d.__version__
assert not {"torch", "numpy"} & {*sys.modules}
"""


def test_import_is_quick_and_light() -> None:
    """One of a few tries is, since other tests may keep the machine busy."""
    for _ in range(4):
        done = subprocess.run([sys.executable, "-c", TIMED], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        if float(done.stdout) < 0.05:
            return
    pytest.fail(f"import l2d takes {done.stdout.strip()} s")


def test_names() -> None:
    assert l2d.Router is Router
    assert l2d.__version__.count(".") == 2
    assert dir(l2d) == sorted(l2d.__all__)
    for name in l2d.__all__:
        assert getattr(l2d, name).__name__.endswith(name) if name != "__version__" else True
    with pytest.raises(AttributeError, match="Rooter"):
        l2d.Rooter  # noqa: B018
    with pytest.raises(ImportError):
        exec("from l2d import Rooter")
