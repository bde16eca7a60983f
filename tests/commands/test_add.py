"""`l2d add`: a saved router with one more expert."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.commands.refusals import refused
from tests.data.sets.test_table import write

import l2d
from l2d.commands.add import main, read_outcomes
from l2d.router.router import Router

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 2)).round(3)
ERRORS = np.stack([X[:, 0] > 0, X[:, 0] <= 0], axis=1).astype(float)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import pandas as pd

    known = {"costs": None, "errors": pd.DataFrame(ERRORS, columns=["a", "b"])}
    router = l2d.fit(pd.DataFrame(X, columns=["x", "y"]), prices=[0.1, 0.2], method="linear", **known)
    router.save(folder := tmp_path_factory.mktemp("routers") / "saved")
    return folder


def outcomes(folder: Path, n: int = 20, **more: Any) -> Path:
    cells = {"x": X[:n, 0].tolist(), "y": X[:n, 1].tolist(), "correct_new": ["yes", "no"] * (n // 2)}
    return write(folder, {**cells, **more})


def test_it_is_what_python_makes(saved: Path, tmp_path: Path) -> None:
    """Also with the known experts' outcomes; rows without an outcome count nowhere."""
    right = {f"correct_{name}": (1 - ERRORS[:20, k]).astype(int).tolist() for k, name in enumerate("ab")}
    file = outcomes(tmp_path, **right, correct_new=["", *["yes", "no"] * 9, "yes"])
    main([str(saved), "--expert", "new", "--file", str(file), "--price", "0.05", "--out", str(tmp_path / "more")])
    wrong = np.array([0, 1] * 9 + [0.0])
    same = Router.load(saved).with_expert("new", X[1:20], wrong, price=0.05, others=ERRORS[1:20])
    found: Any = Router.load(tmp_path / "more").route(X[:30])
    assert [one.expected_costs["new"] for one in found] == pytest.approx(
        [one.expected_costs["new"] for one in same.route(X[:30])]  # type: ignore[index]
    )
    main([str(saved), "--expert", "new", "--like", "b", "--price", "0.05", "--out", str(tmp_path / "like")])
    assert Router.load(tmp_path / "like").experts == ("a", "b", "new")


def test_decimal_commas_are_read_as_in_training(tmp_path: Path) -> None:
    file = tmp_path / "outcomes.csv"
    file.write_text("x;y;correct_new\n" + "".join(f"{x:.1f};1,500;1\n".replace(".", ",") for x in (0.5, 1.5, 2.5)))
    found = read_outcomes(file, "new", ("a", "b"), ["x", "y"], None)
    assert found["queries"] == [{"x": x, "y": 1.5} for x in (0.5, 1.5, 2.5)]


def test_what_is_refused(saved: Path, tmp_path: Path) -> None:
    file, out, no_y = str(outcomes(tmp_path)), tmp_path / "new", tmp_path / "no_y"
    no_y.mkdir()
    for words, said in (
        (["--expert", "other", "--file", file, "--price", "1"], "correct_other"),
        (["--expert", "a", "--like", "b", "--price", "1"], "--expert=a"),
        (["--expert", "new", "--price", "1"], "--like"),
        (["--expert", "new", "--like", "c", "--price", "1"], "--like=c"),
        (["--expert", "new", "--file", file], "--price"),
        (["--expert", "new", "--file", str(write(no_y, {"x": [1], "correct_new": [1]}))], "column y"),
    ):
        assert said in refused(main, saved, *words, "--out", out)
        assert not out.exists()
    assert "--out=" in refused(main, saved, "--expert", "new", "--like", "b", "--price", "1", "--out", no_y)
