"""The release: sdist and wheel, and the wheel in an environment that has l2d's own dependencies and nothing else."""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from l2d.config import CONF
from tests.conftest import TINY

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = shutil.ignore_patterns("*.egg-info", "__pycache__")
TRAIN = """
import sys
from l2d.commands.main import main
try:
    main(["train", *sys.argv[1:]])
finally:
    import l2d
    print(*sorted({"scipy.signal", "torchvision.models"} & sys.modules.keys()), l2d.__file__, file=sys.stderr)
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, and the wheel that is built from it."""
    place = tmp_path_factory.mktemp("built")
    source = place / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("src", "conf"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=LEFT_OUT)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", place, source, cwd=place)
    return place


@pytest.mark.full
def test_sdist_and_wheel(built: Path, tmp_path: Path) -> None:
    files = sorted(map(str, built.glob("l2d-*")))
    assert [Path(file).suffix for file in files] == [".whl", ".gz"]
    run(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=tmp_path)
    zipfile.ZipFile(files[0]).extractall(tmp_path)
    packed = {str(file.relative_to(tmp_path / "l2d" / "conf")) for file in (tmp_path / "l2d" / "conf").rglob("*.yaml")}
    assert packed == {str(file.relative_to(CONF)) for file in CONF.rglob("*.yaml")}
    for file in ("py.typed", "analysis/report/page.html", "analysis/report/paper.csv", "server/page.html"):
        assert (tmp_path / "l2d" / file).exists(), file
    for name in ("l2d", "hydra_plugins"):
        kept, there = (
            {str(file.relative_to(base)) for file in (base / name).rglob("*.py")} for base in (ROOT / "src", tmp_path)
        )
        assert there == kept


def needed(name: str, extras: frozenset[str] = frozenset()) -> set[str]:
    """The distributions that pip installs for name[extras], including itself, if they are installed here."""
    found: set[tuple[str, frozenset[str]]] = set()
    open_ends = [(canonicalize_name(name), extras)]
    while open_ends:
        one = open_ends.pop()
        if one in found:
            continue
        found.add(one)
        for wanted in map(Requirement, distribution(one[0]).requires or []):
            applies = not wanted.marker or any(wanted.marker.evaluate({"extra": extra}) for extra in one[1] or {""})
            if applies and any(True for _ in Distribution.discover(name=wanted.name)):
                open_ends.append((canonicalize_name(wanted.name), frozenset(wanted.extras)))
    return {str(name) for name, _ in found}


def entries(names: set[str]) -> set[Path]:
    """The entries of site-packages that belong to these distributions."""
    files = [(one, file) for one in map(distribution, names) for file in one.files or []]
    return {
        Path(str(one.locate_file(file.parts[0]))) for one, file in files if file.parts[0] not in ("..", "__pycache__")
    }


@pytest.mark.full
def test_the_wheel_in_a_fresh_environment(built: Path, tmp_path: Path) -> None:
    """l2d train in an empty folder, without any package of an extra, and without what takes long to import and is not used."""
    run(sys.executable, "-m", "venv", "--without-pip", "fresh", cwd=tmp_path)
    [wheel], python = built.glob("*.whl"), tmp_path / "fresh" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    [packages] = (tmp_path / "fresh").glob("lib/python*/site-packages")
    for entry in entries(needed("l2d") - {"l2d"}):
        (packages / entry.name).symlink_to(entry)
    empty = tmp_path / "empty"
    empty.mkdir()
    alone = {"PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
    done = run(python, "-c", TRAIN, *TINY, cwd=empty, **alone)
    assert "verdict: " in done.stdout
    assert done.stderr.splitlines()[-1] == f"torchvision.models {packages / 'l2d' / '__init__.py'}"  # which timm needs
    said = run(tmp_path / "fresh" / "bin" / "l2d", "--version", cwd=empty, **alone).stdout
    assert said.split() == ["l2d", "0.2.0"]


def test_the_base_installation_has_no_package_of_an_extra() -> None:
    base = needed("l2d")
    assert {"torch", "hydra-core", "scikit-learn", "pyarrow"} <= base
    for name in ("wandb", "transformers", "onnx", "ray", "pandas", "mkdocs", "pytest"):
        assert name not in base, name
    assert needed("l2d", frozenset({"serve"})) - base >= {"fastapi", "starlette"}


def test_conf_is_kept_once() -> None:
    """src/l2d/conf is a link to conf/, not a copy of it."""
    assert (ROOT / "src" / "l2d" / "conf").is_symlink()
    assert (ROOT / "conf").resolve() == CONF.resolve()
