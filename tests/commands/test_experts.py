"""`l2d experts`: what its table says, and what force=true asks for. Experts that are trained are in tests/experts."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from l2d.commands.experts import accuracy_table, experts_job
from l2d.config import compose
from l2d.data.arrays import Answers, Panel
from l2d.data.splits import Split
from l2d.utils.errors import L2DError


def split(*errors: list[float]) -> Split:
    """Two rows, of class 0 and of class 1."""
    found = torch.tensor(errors)
    return Split(torch.zeros(2, 1), torch.arange(2), Answers(found), found, torch.zeros(2), torch.arange(2))


def splits() -> Any:
    """Experts a and b know a class each."""
    parts = {"train": split([0, 1], [1, 0]), "validation": split([1, 0], [0, 0]), "test": split([0, 0], [0, 1])}
    answers = parts["train"].answers
    panel = Panel(("a", "b"), answers, answers, knows=torch.eye(2, dtype=torch.bool))
    return SimpleNamespace(**parts, panel=panel)


def test_the_table_by_hand() -> None:
    """Right on the own class, on the other, overall; for training, validation and test rows."""
    header, _, a, b = accuracy_table(splits()).splitlines()
    assert re.findall("(train|validation|test): (own|others|overall)", header) == [
        (name, column) for name in ("train", "validation", "test") for column in ("own", "others", "overall")
    ]
    assert [float(cell.strip("%")) for cell in a.split()[1:]] == [100, 0, 50, 0, 100, 50, 100, 100, 100]
    assert [float(cell.strip("%")) for cell in b.split()[1:]] == [100, 0, 50, 100, 100, 100, 0, 100, 50]


def test_what_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is known of classes here, so there are no shares on the own and on the others."""
    found, errors = splits(), torch.tensor([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    zeros = torch.zeros(3)
    found.train = Split(zeros[:, None], torch.arange(3), Answers(errors), errors, zeros, zeros.long())
    found.panel = Panel(("a", "b"), found.test.answers, found.test.answers)
    monkeypatch.setattr("l2d.assembly.build.make_splits", lambda *_, **__: found)
    experts_job(compose([], name="experts"))
    title, _, _, _, a, *_ = capsys.readouterr().out.splitlines()
    assert ("digits" in title, re.findall(r"\d", title)) == (True, ["3", "2", "2"])
    assert a.split() == ["a", "-", "-", "33.33%", "-", "-", "50.00%", "-", "-", "100.00%"]


def test_there_is_nothing_to_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("l2d.assembly.build.make_splits", lambda *_, **__: pytest.fail("they were made"))
    with pytest.raises(L2DError, match=r"^dry_run: "):
        experts_job(compose(["dry_run=true"], name="experts"))


@pytest.mark.parametrize("force", [False, True])
def test_force_makes_them_again(force: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def make_splits(_: Any, *, renew_experts: bool = False) -> Any:
        asked.append(renew_experts)
        return splits()

    monkeypatch.setattr("l2d.assembly.build.make_splits", make_splits)
    experts_job(compose([f"force={force}"], name="experts"))
    assert asked == [force]
