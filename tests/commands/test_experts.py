"""`l2d experts`: what its table says, and what force=true asks for. Experts that are trained are in tests/experts."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from l2d.commands.experts import accuracy_table, experts_job, made
from l2d.config import compose
from l2d.data.arrays import Answers, Panel
from l2d.routing.assemble import Split


def split(*errors: list[float]) -> Split:
    """Two rows, of class 0 and of class 1."""
    found = torch.tensor(errors)
    return Split(torch.zeros(2, 1), torch.arange(2), Answers(found), found, torch.zeros(2), torch.arange(2))


def splits(seconds: float | None = None, expert_seconds: float = 0.0) -> Any:
    """Experts a and b know a class each. seconds: what making them took; expert_seconds: what it took now."""
    parts = {"train": split([0, 1], [1, 0]), "validation": split([1, 0], [0, 0]), "test": split([0, 0], [0, 1])}
    answers = parts["train"].answers
    panel = Panel(("a", "b"), answers, answers, knows=torch.eye(2, dtype=torch.bool))
    cache = SimpleNamespace(seconds=seconds, entry="there")
    return SimpleNamespace(**parts, panel=panel, cache=cache, expert_seconds=expert_seconds)


def test_the_table_by_hand() -> None:
    """Right on the own class, on the other, overall; for training, validation and test rows."""
    header, _, a, b = accuracy_table(splits()).splitlines()
    columns = [
        f"{name}: {column}" for name in ("train", "validation", "test") for column in ("own", "others", "overall")
    ]
    assert [header.index(column) for column in columns] == sorted(header.index(column) for column in columns)
    assert [float(cell.strip("%")) for cell in a.split()[1:]] == [100, 0, 50, 0, 100, 50, 100, 100, 100]
    assert [float(cell.strip("%")) for cell in b.split()[1:]] == [100, 0, 50, 100, 100, 100, 0, 100, 50]


def test_whether_they_were_made_now() -> None:
    assert made(splits()) == []
    assert made(splits(5.0, 5.0)) == ["made, in 5 s: there"]
    assert made(splits(5.0, 4.9)) == ["made earlier (force=true makes them again), in 5 s: there"]


@pytest.mark.parametrize("force", [False, True])
def test_force_makes_them_again(force: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def make_splits(_: Any, *, renew_experts: bool = False) -> Any:
        asked.append(renew_experts)
        return splits()

    monkeypatch.setattr("l2d.routing.build.make_splits", make_splits)
    experts_job(compose([f"force={force}"], name="experts"))
    assert asked == [force]
