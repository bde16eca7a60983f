"""Crops and flips of a batch against a slow reference, one pixel at a time."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from l2d.data.batches import crop_flip, draw_augmentation


def slowly(image: np.ndarray, dy: int, dx: int, flip: bool) -> np.ndarray:
    """out[i, j] = padded[i + dy, j' + dx] with j' = j, or mirrored."""
    h, w, _ = image.shape
    out = np.zeros_like(image)
    for i in range(h):
        for j in range(w):
            y, x = i + dy, (w - 1 - j if flip else j) + dx
            if 0 <= y < h and 0 <= x < w:
                out[i, j] = image[y, x]
    return out


SIDE = st.integers(2, 6)


@given(
    st.tuples(st.integers(1, 4), SIDE, SIDE, st.integers(1, 3)), st.integers(0, 4), st.booleans(), st.integers(0, 999)
)
def test_against_loops(shape: tuple[int, int, int, int], pad: int, flip: bool, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    images = torch.randint(1, 256, shape, generator=rng, dtype=torch.uint8)
    draws = draw_augmentation(len(images), pad, rng)
    got = crop_flip(images, draws, flip)
    assert got.dtype == torch.uint8
    for image, (dy, dx, mirrored), out in zip(images.numpy(), draws.tolist(), got.numpy(), strict=True):
        np.testing.assert_array_equal(out, slowly(image, dy, dx, flip and bool(mirrored)))


def test_by_hand() -> None:
    """Shift one down in the source: the first row is the old second, the last is padding. Flipped: columns swap."""
    image = torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8)[None, :, :, None]
    assert crop_flip(image, torch.tensor([[1, 0, 0]]), flip=True)[0, :, :, 0].tolist() == [[3, 4], [0, 0]]
    assert crop_flip(image, torch.tensor([[0, 0, 1]]), flip=True)[0, :, :, 0].tolist() == [[2, 1], [4, 3]]
    assert crop_flip(image, torch.tensor([[0, 0, 1]]), flip=False)[0, :, :, 0].tolist() == [[1, 2], [3, 4]]
