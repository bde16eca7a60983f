"""How training ends, and which batches are of the usual size."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.exceptions import MisconfigurationException, SIGTERMException
from tests.assembly.test_module import Parts
from torch import Tensor

from l2d.lightning import learner as learning
from l2d.lightning.learner import PLAIN, STREAMS, Learner, ended_by_signals, make_trainer, speed
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.user_errors import TERMINATED

SGD = partial(torch.optim.SGD, lr=0.1)
ON_CPU: dict[str, Any] = {"channels_last": False, "compile_mode": "false"}


class Ending(Learner):
    def __init__(self, end: Callable[[], object]) -> None:
        super().__init__(network=torch.nn.Linear(1, 1), optimizer=SGD, schedule="constant", **ON_CPU)
        self.end = end

    def losses(self, inputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        self.end()
        return self.network(inputs)[:, 0]


@contextmanager
def kept_handlers() -> Iterator[None]:
    """Lightning switches Ctrl-C off while it shuts down, and leaves it so."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def rows_of(number: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.ones(number, 1), torch.zeros(number, 2), torch.zeros(number)


def train_two_steps(learner: Learner, epochs: int = 1) -> pl.Trainer:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = make_trainer(accelerator="cpu", max_epochs=epochs, log_every_n_steps=1, callbacks=[], **quiet)
    with kept_handlers(), ended_by_signals():
        trainer.fit(learner, Parts([rows_of(2)] * 2))
    return trainer


def test_every_step_has_its_own_gradient() -> None:
    """The loss is w · (w + b) + b. Two steps by hand, from w = 1, b = 0, with rate .1: the gradients are (2, 2), then (1.4, 1.8)."""
    learner = Ending(lambda: None)
    learner.network.load_state_dict({"weight": torch.ones(1, 1), "bias": torch.zeros(1)})
    train_two_steps(learner)
    found = {name: float(value) for name, value in learner.network.state_dict().items()}
    assert found == {"weight": pytest.approx(1 - 0.2 - 0.14), "bias": pytest.approx(0 - 0.2 - 0.18)}


def press(number: int) -> None:
    os.kill(os.getpid(), number)
    signal.getsignal(number)  # the handler runs here at the latest


def test_ctrl_c_is_a_keyboard_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    with pytest.raises(KeyboardInterrupt):
        train_two_steps(Ending(lambda: press(signal.SIGINT)))


def test_sigterm_ends_with_its_own_status() -> None:
    with pytest.raises(SystemExit) as caught:
        train_two_steps(Ending(lambda: press(signal.SIGTERM)))
    assert caught.value.code == TERMINATED
    assert not isinstance(caught.value, SIGTERMException)


@pytest.mark.parametrize("code", ["please install foo", 1])
def test_another_exit_keeps_its_message_and_status(code: str | int) -> None:
    with pytest.raises((SystemExit, KeyboardInterrupt)) as caught:
        train_two_steps(Ending(lambda: sys.exit(code)))
    assert isinstance(caught.value, SystemExit)
    assert caught.value.code == code


def test_a_trainer_of_one_device_belongs_to_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"NTASKS": "2", "PROCID": "1", "LOCALID": "1", "NODEID": "0", "JOB_NAME": "sweep"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    trainer = make_trainer(accelerator="cpu", devices=1, logger=False, enable_checkpointing=False)
    assert trainer.is_global_zero


def test_what_the_trainer_refuses_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    # It would hold for the tests after this one.
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda *_: None)
    with pytest.raises(ParameterError, match=r"^trainer=.*abacus") as caught:
        make_trainer(accelerator="abacus", devices=1, deterministic=True, logger=False)
    assert caught.value.value == {"accelerator": "abacus", "devices": 1, "deterministic": True}
    for kind in (ValueError, MisconfigurationException):
        refuse = Mock(side_effect=kind("no such device\nlong story"))
        monkeypatch.setattr(pl, "Trainer", refuse)
        with pytest.raises(ParameterError, match=r"no such device$"):
            make_trainer(devices=9)


@pytest.mark.parametrize("devices", [1, 2])
def test_several_devices_are_found_by_lightning(devices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pl, "Trainer", lambda **options: options)
    options: Any = make_trainer(devices=devices)
    assert (options["plugins"] is None) == (devices > 1)
    assert options["use_distributed_sampler"] is False


class Noting(torch.nn.Linear):
    """Notes the rows of each batch, and whether compiled code was to be used."""

    def __init__(self) -> None:
        super().__init__(1, 1)
        self.seen: list[tuple[int, bool]] = []

    def forward(self, inputs: Tensor, compute: object = None) -> Tensor:
        self.seen.append((len(inputs), compute is not None))
        return super().forward(inputs)


class Small(Learner):
    def __init__(self, schedule: str = "constant") -> None:
        super().__init__(network=Noting(), optimizer=SGD, schedule=schedule, **ON_CPU)

    def losses(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        return outputs[:, 0]


def test_only_full_batches_run_compiled() -> None:
    """The last batch of an epoch is smaller: it would be compiled for itself."""
    learner: Any = Small()
    learner.compiled = [lambda network, inputs: network(inputs)]
    for number in (3, 3, 2, 3):
        learner.training_step(rows_of(number), 0)
    assert learner.network.seen == [(3, True), (3, True), (2, False), (3, True)]
    assert [learning.is_full(rows, 8, 1) for rows in (7, 8, 9)] == [False, True, False]
    assert [learning.is_full(rows, 8, 2) for rows in (7, 8, 9, 10)] == [False, True, True, False]


def test_predictions_search_no_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    Small().on_predict_start()  # batches of other sizes come: no search for each
    assert not torch.backends.cudnn.benchmark


def rates(schedule: str, steps: int) -> list[float]:
    """Of each step, and the one after the last. Momentum is left alone."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5, momentum=0.9)
    scheduler = learning.make_scheduler(optimizer, schedule, steps)
    [group], found = optimizer.param_groups, list[float]()
    for _ in range(steps):
        found.append(group["lr"])
        optimizer.step()
        scheduler.step()
    assert group["momentum"] == 0.9
    return [*found, group["lr"]]


def test_rates() -> None:
    """A cosine of 4 steps. A cycle of 9: from 1/25 of the rate up to it over a fifth of the steps, then along a cosine to 0."""
    assert rates("cosine", 4) == pytest.approx([0.5, 0.25 * (1 + 0.5**0.5), 0.25, 0.25 * (1 - 0.5**0.5), 0])
    cycle = rates("one_cycle", 9)
    assert [cycle[step] for step in (0, 1, 5, 9)] == pytest.approx([0.02, 0.5, 0.250001, 2e-6])
    for steps in (1, 2, 3, 4, 5):  # small experts train for a handful; torch's own cycle divides by zero at four
        few = rates("one_cycle", steps)[:-1]
        assert all(0 < rate <= 0.5 for rate in few)
        assert steps < 4 or max(few) > 0.3
    trainer = train_two_steps(Small("cosine"), epochs=2)
    assert float(trainer.callback_metrics["lr"]) == pytest.approx(0, abs=1e-9)


def test_the_random_stream_is_in_the_checkpoint() -> None:
    """Dropout of a resumed run draws what an unbroken one would have drawn."""
    learner, checkpoint = Ending(lambda: None), dict[str, Any]()
    torch.manual_seed(3)
    learner.on_save_checkpoint(checkpoint)
    expected = torch.rand(3)
    assert len(checkpoint[STREAMS]) == 1  # no GPU, no stream of one
    torch.manual_seed(4)
    learner.on_load_checkpoint(checkpoint)
    assert torch.equal(torch.rand(3), expected)


def test_the_loss_of_an_epoch_is_the_mean_over_its_rows() -> None:
    learner = Ending(lambda: None)
    learner.loss_sum, learner.rows_seen = torch.tensor(6.0), 4  # of the epoch before
    learner.on_train_epoch_start()
    for rows in ([[1.0], [2.0]], [[6.0]]):
        learner.training_step((torch.tensor(rows), torch.zeros(len(rows), 2), torch.zeros(len(rows))), 0)
    with torch.no_grad():
        expected = learner.network(learner.network(torch.tensor([[3.0]])))  # its losses apply it once more
    assert float(learner.loss_sum) / learner.rows_seen == pytest.approx(float(expected), rel=1e-5)


def test_a_cpu_does_without_what_is_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe: Any = SimpleNamespace(precision="bf16-mixed", channels_last=True, compile="default")
    assert speed(recipe, "cpu") == PLAIN == {"precision": "32-true", "channels_last": False, "compile": "false"}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for accelerator in ("auto", "gpu", "cuda"):
        assert speed(recipe, accelerator) == vars(recipe)
    assert speed(recipe, "cpu") == PLAIN


@pytest.mark.parametrize(
    ("train", "validation", "named"), [("inf", 1, "train/loss"), ("nan", 1, "train/loss"), (1, "inf", "val/loss")]
)
def test_a_loss_that_is_not_finite_ends_the_training(train: float, validation: float, named: str) -> None:
    """The losses of an epoch are those before its last step: a last step that diverges shows in the validation loss."""
    learner: Any = SimpleNamespace(loss_sum=torch.tensor(float(train)), rows_seen=1, current_epoch=2, recipe_key="r")
    learner.trainer = SimpleNamespace(callback_metrics={"val/loss": torch.tensor(float(validation))})
    with pytest.raises(L2DError, match=rf"{named} .*epoch 3.*r\.optimizer\.lr"):
        Learner.on_train_epoch_end(learner)
