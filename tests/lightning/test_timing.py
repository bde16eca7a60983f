"""Where the time of a run went, by a clock of the test's own."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from l2d.lightning import timing
from l2d.lightning.timing import Timer


def test_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """50 s of experts; four epochs, half a second of validation after each. The first one compiles: the rate is by the median of
    the others, 2 s. From the first step, 1 s after the experts, to the last: 9 + 4 + 1 + 2 − 1 + 3·.5."""
    now = 100.0
    monkeypatch.setattr(timing, "time", SimpleNamespace(time=lambda: now))
    timer = Timer()
    now += 50
    timer.leave_out(30)
    timer.leave_out(20)
    for seconds in (9.0, 4.0, 1.0, 2.0):
        timer.on_train_epoch_start()
        for step in (1, seconds - 1):
            now += step
            timer.on_train_batch_end()
        timer.on_validation_start()
        now += 0.5
    found = timer.record(images=60)
    assert found["epoch_seconds"] == [9, 4, 1, 2]
    assert found["images_per_second"] == 30
    assert (found["expert_seconds"], found["total_seconds"], found["steps_seconds"]) == (50, 18, 16.5)
    assert (found["started_at"], found["first_step_at"], found["last_step_at"]) == (100, 151, 167.5)
    assert found["epochs_end_at"] == [159, 163.5, 165, 167.5]
    timer = Timer()  # no epoch, and one
    assert timer.record(images=60)["images_per_second"] is None
    timer.epoch_seconds = [2.0]
    assert timer.record(images=60)["images_per_second"] == 30


def test_memory_is_in_gib_and_without_the_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_used = 9 * 2**30

    def begin_anew() -> None:
        nonlocal bytes_used
        bytes_used = 3 * 2**30

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", begin_anew)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: bytes_used)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    timer = Timer()
    timer._device = torch.device("cuda")
    timer.leave_out(30)
    found = timer.record(images=60)
    assert (found["device"], found["gpu_memory_gib"]) == ("a GPU", 3)
    monkeypatch.setattr(timing, "host_memory", lambda: 5 * 2**30)
    assert Timer().record(images=60)["host_memory_gib"] == 5


def test_memory_is_the_process_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most Linux systems tell it in a file of their own. Without, ru_maxrss is in kilobytes, but in bytes on macOS."""
    (tmp_path / "status").write_text("Name:\tpython\nVmPeak:\t 9 kB\nVmHWM:\t    3072 kB\nVmRSS:\t 7 kB\n")
    assert timing.host_memory(tmp_path / "status") == 3 * 2**20
    used = SimpleNamespace(ru_maxrss=5 * 2**20)
    monkeypatch.setattr(timing, "resource", SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda _: used))
    (tmp_path / "other").write_text("VmRSS:\t 7 kB\n")
    for file in ("none", "other"):
        assert timing.host_memory(tmp_path / file) == 5 * 2**30
    monkeypatch.setattr(timing, "sys", SimpleNamespace(platform="darwin"))
    assert timing.host_memory(tmp_path / "none") == 5 * 2**20
