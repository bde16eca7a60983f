"""Limits are kept exactly: in any minute, by threads, processes and servers that are killed."""

import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from l2d.logs.decision import Decision, NobodyFree, new_decision_id
from l2d.logs.operations import Limit, ask_within, decide_within, decided_since, left, read_limits
from l2d.logs.outcome_log import OutcomeLog
from l2d.utils.errors import ParameterError

EXPERTS = ("a", "b")


def first_free(full: Mapping[str, float]) -> Decision:
    free = [name for name in EXPERTS if name not in full]
    if not free:
        raise NobodyFree(min(full.values()))
    return Decision(new_decision_id(), "run", free[0], "a", "router", 1.0)


def in_log(file: Path) -> dict[str, int]:
    with sqlite3.connect(file) as log:
        found = dict(log.execute("SELECT expert, count(*) FROM decisions GROUP BY expert").fetchall())
    log.close()
    return found


def test_any_window_against_a_slow_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question is allowed if and only if fewer than the limit were, in the seconds before it."""
    log, rng, now = OutcomeLog(tmp_path / "log.sqlite"), random.Random(0), 1e9
    limits = {"a": Limit(5, "minute")}
    times: list[float] = []
    monkeypatch.setattr("l2d.logs.operations.time.time", lambda: now)
    for _ in range(400):
        now += rng.choice([0.0, 0.3, 2.0, 20.0, -1.0])
        clock = max([now, *times[-1:]])  # a clock that goes back stands still
        expected = sum(clock - 60 < one for one in times) < 5
        assert log.do(left, limits).result() == {"a": 5 - sum(clock - 60 < one for one in times)}
        assert log.do(ask_within, "a", limits).result() == expected
        times += [clock] if expected else []
    log.close()
    assert len(times) > 50


def test_a_request_gets_all_or_nothing(tmp_path: Path) -> None:
    log, limits = OutcomeLog(tmp_path / "log.sqlite"), {"a": Limit(2, "hour"), "b": Limit(1, "day")}
    found = log.do(decide_within, [first_free] * 2, limits).result()
    assert [one.expert for one in found] == ["a", "a"]
    with pytest.raises(NobodyFree) as refused:
        log.do(decide_within, [first_free] * 2, limits).result()
    assert 3500 < int(refused.value.retry_after or 0) <= 3601
    assert log.do(left, limits).result() == {"a": 0, "b": 1}
    assert [one.expert for one in log.do(decide_within, [first_free], limits).result()] == ["b"]
    log.close()
    again = OutcomeLog(tmp_path / "log.sqlite")  # a restart
    with pytest.raises(NobodyFree):
        again.do(decide_within, [first_free], limits).result()
    assert not again.do(ask_within, "a", {"a": Limit(2, "hour")}).result()
    hour = time.localtime().tm_hour
    others = [Limit(9, "hour"), *(Limit(9, "day", ((hour + k) % 24, (hour + k + 2) % 24)) for k in (-1, 5))]
    within, here, apart = again.do(decided_since, others).result()
    assert (within > 0, here > 0, apart) == (True, True, 0)  # about: decisions of one millisecond have no order
    again.close()
    assert in_log(tmp_path / "log.sqlite") == {"a": 2, "b": 1}


def test_many_threads_and_two_servers(tmp_path: Path) -> None:
    logs = [OutcomeLog(tmp_path / "log.sqlite") for _ in range(2)]
    limits, refused = {"a": Limit(37, "hour"), "b": Limit(11, "day")}, list[int]()

    def ask(log: OutcomeLog) -> None:
        for _ in range(10):
            try:
                log.do(decide_within, [first_free], limits).result()
            except NobodyFree:
                refused.append(1)

    threads = [threading.Thread(target=ask, args=(log,)) for log in logs * 4]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for log in logs:
        log.close()
    assert (in_log(tmp_path / "log.sqlite"), len(refused)) == ({"a": 37, "b": 11}, 80 - 48)


ASK = """
import sys
from collections.abc import Mapping
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.logs.test_capacity import Limit, OutcomeLog, decide_within, first_free
log = OutcomeLog(Path(sys.argv[1]))
while True:
    log.do(decide_within, [first_free], {"a": Limit(300, "hour"), "b": Limit(10**6, "hour")}).result()
"""


@pytest.mark.full
def test_servers_that_are_killed(tmp_path: Path) -> None:
    """The limit is reached by two processes, killed and started again, and never exceeded."""
    file, rng = tmp_path / "log.sqlite", random.Random(0)
    OutcomeLog(file).close()
    command = [sys.executable, "-c", ASK, str(file), str(Path(__file__).parents[2])]
    end = time.monotonic() + 60
    while in_log(file).get("b", 0) < 50 and time.monotonic() < end:
        both = [subprocess.Popen(command) for _ in range(2)]
        before = sum(in_log(file).values())
        while sum(in_log(file).values()) < before + 100 and time.monotonic() < end:
            time.sleep(rng.uniform(0.01, 0.05))
        for one in both:
            one.send_signal(signal.SIGKILL)
            one.wait()
    assert in_log(file)["a"] == 300


WRONG = (
    "40",
    "40/week",
    "0/hour",
    "-1/hour",
    "1.5/day",
    "x/minute",
    "4/day 9-",
    "4/day 9-25",
    "4/day 9-9",
    "4/day 0-24",
)


@pytest.mark.parametrize(
    ("name", "text"),
    [("z", "1/hour"), *(("a", text) for text in WRONG)],
)
def test_bad_limits(name: str, text: str) -> None:
    with pytest.raises(ParameterError) as problem:
        read_limits({name: text}, EXPERTS)
    assert str(problem.value).startswith(f"capacity.a={text}: " if name == "a" else "capacity=z: ")


def test_limits_as_they_are_written() -> None:
    found = read_limits({"a": "40/hour", "b": " 100 / minute "}, EXPERTS)
    assert found == {"a": Limit(40, "hour"), "b": Limit(100, "minute")}
    assert str(Limit(40, "hour")) == "40/hour"
    night = Limit(40, "hour", (22, 6))
    assert read_limits({"a": str(night)}, EXPERTS) == {"a": night}


@pytest.mark.parametrize(
    ("hours", "clock", "wait"),
    [
        *(((9, 17), (9, 0), 0), ((9, 17), (16, 59), 0), ((9, 17), (17, 0), 16), ((9, 17), (8, 30), 0.5)),
        *(((22, 6), (23, 0), 0), ((22, 6), (5, 59), 0), ((22, 6), (6, 0), 16), ((17, 24), (23, 30), 0)),
    ],
)
def test_hours(
    hours: tuple[int, int], clock: tuple[int, int], wait: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.mktime((2030, 6, 5, *clock, 0, 0, 0, -1))
    monkeypatch.setattr("l2d.logs.operations.time.time", lambda: now)
    log, limits = OutcomeLog(tmp_path / "log.sqlite"), {"a": Limit(2, "day", hours), "b": Limit(1, "day")}
    assert limits["a"].closed(now) == pytest.approx(3600 * wait)
    assert log.do(left, limits).result() == {"a": 0 if wait else 2, "b": 1}
    assert log.do(ask_within, "a", limits).result() == (wait == 0)
    log.close()
