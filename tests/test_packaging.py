"""The wheel is enough: it carries conf/, and the command runs from it far away from this checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from l2d.config import CONF

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
def test_wheel(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("src", "conf"):
        shutil.copytree(
            ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__")
        )
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
        str(source),
    ]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (wheel,) = tmp_path.glob("l2d-*.whl")
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    packed = {
        str(file.relative_to(installed / "l2d" / "conf")) for file in (installed / "l2d" / "conf").rglob("*.yaml")
    }
    assert packed == {str(file.relative_to(CONF)) for file in CONF.rglob("*.yaml")}
    for file in ("py.typed", "analysis/report/page.html", "analysis/report/paper.csv"):
        assert (installed / "l2d" / file).exists(), file
    for name in ("l2d", "hydra_plugins"):
        kept, there = (
            {str(file.relative_to(base)) for file in (base / name).rglob("*.py")} for base in (ROOT / "src", installed)
        )
        assert there == kept
    [scripts] = installed.glob("l2d-*.dist-info/entry_points.txt")
    assert "l2d = l2d.commands.main:main" in scripts.read_text()
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "l2d.train", "--cfg", "job", "method=tdef"]
    result = subprocess.run(command, cwd=installed, env=environment, capture_output=True, text=True, check=True)
    assert "name: tdef" in result.stdout
    where = [sys.executable, "-c", "import l2d; print(l2d.__file__)"]
    found = subprocess.run(where, cwd=installed, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(installed / "l2d" / "__init__.py")


def test_conf_is_kept_once() -> None:
    """src/l2d/conf is a link to conf/, not a copy of it."""
    assert (ROOT / "src" / "l2d" / "conf").is_symlink()
    assert (ROOT / "conf").resolve() == CONF.resolve()
