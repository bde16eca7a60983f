"""Folder names follow from names and values alone."""

from hypothesis import given
from hypothesis import strategies as st

from l2d.utils.identity import identity_hash, without_class_paths

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def turned(value: object) -> object:
    """Every mapping with its keys the other way round."""
    if isinstance(value, dict):
        return {key: turned(item) for key, item in reversed(value.items())}
    return [turned(item) for item in value] if isinstance(value, list) else value


@given(PLAIN)
def test_the_order_of_keys_does_not_matter(content: object) -> None:
    assert identity_hash(turned(content), 12) == identity_hash(content, 12)


@given(st.integers(-(2**53), 2**53))
def test_a_whole_number_is_one_setting_however_it_is_written(number: int) -> None:
    assert identity_hash({"offset": [number]}, 12) == identity_hash({"offset": (float(number),)}, 12)
    assert identity_hash(number, 12) != identity_hash(number + 1, 12)


def test_different_values_differ() -> None:
    plain = [True, False, 1, 0, 0.5, -1, "1", "True", None]
    values = [*plain, [], {}, [1], [[1]], [1, 0], {"1": 1}, {"a": 1}, {"a": True}]
    assert len({identity_hash(value, 16) for value in values}) == len(values)
    assert identity_hash(2**60, 16) != identity_hash(2**60 + 1, 16)  # as floats they would be one
    assert identity_hash(0.0, 16) == identity_hash(-0.0, 16)


def test_class_paths_are_left_out_at_every_depth() -> None:
    config = {
        "name": "trained",
        "_target_": "l2d.experts.trained.TrainedExperts",
        "network": {"name": "resnet18", "_target_": "l2d.networks.vision.ResNet18", "_partial_": True, "width": 2},
        "list": [{"name": "a", "_target_": "b.C", "_convert_": "all", "x": (1, 2)}],
    }
    network = {"name": "resnet18", "width": 2}
    assert without_class_paths(config) == {"name": "trained", "network": network, "list": [{"name": "a", "x": [1, 2]}]}
    assert "_target_" in config  # the config itself is left as it was
    # The optimizers of two recipes may have the same parameters.
    adam, sgd = ({"_target_": f"torch.optim.{kind}", "_partial_": True, "lr": 0.1} for kind in ("Adam", "SGD"))
    assert without_class_paths(adam) != without_class_paths(sgd)
    moved = {**adam, "_target_": "torch.optim.adam.Adam"}
    assert without_class_paths(moved) == without_class_paths(adam)


def test_our_own_optimizer_may_be_renamed() -> None:
    """Another optimizer in its place, by recipe.optimizer._target_ alone, is another one all the same."""

    def known(target: str) -> str:
        return str(without_class_paths({"optimizer": {"name": "Muon", "_target_": target, "lr": 0.1}}))

    assert known("l2d.lightning.steps.Renamed") == known("l2d.lightning.muon.Muon")
    assert len({known("l2d.lightning.muon.Muon"), known("torch.optim.SGD"), known("mine.A"), known("mine.B")}) == 4
