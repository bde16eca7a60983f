"""One line that names the parameter; the layers above add their keys."""

import pickle

import pytest

from l2d.utils.errors import Busy, L2DError, ParameterError, from_extra, under, unknown


def test_the_line() -> None:
    assert str(ParameterError("tau", "must not be negative", -1)) == "tau=-1: must not be negative"
    assert str(ParameterError("tau", "is missing")) == "tau: is missing"
    assert str(ParameterError("tau", "must be a number", None)) == "tau=None: must be a number"
    assert issubclass(ParameterError, L2DError)
    assert issubclass(Busy, L2DError)


def test_keys_are_added_from_the_inside_out() -> None:
    with pytest.raises(ParameterError) as caught, under("experts"), under("network"):
        raise ParameterError("width", "must be even", 3)
    assert str(caught.value) == "experts.network.width=3: must be even"
    assert (caught.value.parameter, caught.value.value) == ("experts.network.width", 3)
    # The whole object may be at fault, and no key is no key.
    with pytest.raises(ParameterError, match=r"^method: has no rho$"), under(""), under("method"):
        raise ParameterError("", "has no rho")


def test_causes_and_other_errors_stay_and_a_bug_has_a_note_of_the_key() -> None:
    cause = ZeroDivisionError()
    with pytest.raises(ParameterError) as found, under("method"):
        raise ParameterError("tau", "too small", 0) from cause
    assert found.value.__cause__ is cause
    for error in (L2DError("as it is"), ZeroDivisionError()):
        with pytest.raises(type(error)) as caught, under("method"):
            raise error
        assert caught.value is error
        assert getattr(error, "__notes__", []) == ([] if isinstance(error, L2DError) else ["in method"])


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("zzz", ["b", "a"], "unknown key; there are b, a"),
        ("zzz", ["name", "_target_", "b", "about"], "unknown key; there are b"),
        ("nam", ["name", "b"], "unknown key; did you mean name?"),
        ("zzz", ["name"], "unknown key"),
    ],
)
def test_what_may_have_been_meant(name: str, known: list[str], said: str) -> None:
    assert unknown("key", name, known) == said


@pytest.mark.parametrize(
    "error", [ParameterError("tau", "must not be negative", -1), ParameterError("tau", "is missing")]
)
def test_a_parameter_error_travels_between_processes(error: ParameterError) -> None:
    """A launcher's worker sends it back pickled."""
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.parameter, again.problem) == (str(error), error.parameter, error.problem)
    assert str(again.under("method")) == str(error.under("method"))


@pytest.mark.parametrize("error", [ModuleNotFoundError, ImportError])  # missing, or too old to have what is asked of it
def test_the_extra_is_named(error: type[ImportError]) -> None:
    said = r"^logger=wandb needs more packages: pip install 'l2d\[wandb\]'$"
    with pytest.raises(L2DError, match=said), from_extra("wandb", "logger=wandb"):
        raise error("wandb")
    with from_extra("wandb", "logger=wandb"):
        import json  # noqa: F401
