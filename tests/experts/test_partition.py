"""Which expert knows which class."""

import pytest

from l2d.config import compose
from l2d.experts.partition import class_owners
from l2d.utils.errors import L2DError

PAPER = {
    "I": [0] * 7 + [1] * 2 + [2],
    "II": [0] * 5 + [1] * 2 + [2] * 2 + [3],
    "III": [0] * 4 + [1] * 2 + [2] * 2 + [3, 4],
    "severe": [0] * 9 + [1],
}


@pytest.mark.parametrize("setup", PAPER)
def test_the_papers_setups(setup: str) -> None:
    coverage = compose([f"setup={setup}"]).setup.coverage
    assert class_owners(coverage, 10).tolist() == PAPER[setup]
    hundred = [owner for owner in PAPER[setup] for _ in range(10)]
    assert class_owners(coverage, 100).tolist() == hundred


@pytest.mark.parametrize(("coverage", "words"), [(None, "missing"), ([0.97, 0.03], "expert 2 .* 10 classes")])
def test_bad_coverage(coverage: list[float] | None, words: str) -> None:
    with pytest.raises(L2DError, match=rf"^setup\.coverage\b.*{words}"):
        class_owners(coverage, 10)
