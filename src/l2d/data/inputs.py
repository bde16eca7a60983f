"""A router's inputs as a tensor: from a table, or from rows, texts or images."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from l2d.data.arrays import Seen
from l2d.data.cells import amounts, cell_word
from l2d.data.sheet import Sheet
from l2d.utils.errors import L2DError
from l2d.utils.text import listed

Embed = Callable[[Sequence[str]], np.ndarray]
Shape = tuple[int, ...]
MODES = {1: "L", 3: "RGB"}  # Pillow's, by the number of channels
LARGEST = float(np.finfo(np.float32).max)
NO_IMAGE = "no such file, or not an image that can be read"


def sheet_inputs(sheet: Sheet, seen: Seen, shape: Shape, embed: Embed) -> Tensor:
    """float32 [n, F], int32 [n, L] if `embed` gives tokens, or uint8 images [n, *shape]. The sheet has the columns of `seen`."""
    if seen.image is not None:
        files = [sheet.path.parent / Path(text).expanduser() for text in sheet.texts(seen.image)]
        images, bad = decode_images(files, shape)
        sheet.refuse(seen.image, NO_IMAGE, bad)
        return images
    parts = []
    for column in seen.features:
        if column in seen.categories:
            parts.append(one_hot(sheet.words(column, gaps=True), seen.categories[column]))
        else:
            values = sheet.numbers(column, commas=column in seen.commas)
            sheet.refuse(column, "too large for 32 bits", np.abs(values) > LARGEST)
            parts.append(values.astype(np.float32)[:, None])
    if seen.text is not None:
        parts.append(embed(sheet.texts(seen.text)))
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    return torch.from_numpy(np.require(whole, requirements=["OWNDATA", "WRITEABLE"]))  # an encoder may keep its array


def row_inputs(rows: Sequence[Mapping[str, object]], seen: Seen, embed: Embed) -> Tensor:
    """float32 [n, F], or int32 [n, L] if `embed` gives tokens. Columns that the router does not see are ignored."""
    columns = [*seen.features, *([] if seen.text is None else [seen.text])]
    for place, row in enumerate(rows, start=1):
        if missing := [column for column in columns if column not in row]:
            raise L2DError(f"query {place}: has no {missing[0]}; there are {listed(list(row))}")
    parts = [np.zeros((len(rows), 0))]
    for column in seen.features:
        known, cells, commas = seen.categories.get(column), [row[column] for row in rows], column in seen.commas
        numbers = [amounts([cell], commas=commas) for cell in cells] if known is None else []
        parts.append(np.array(numbers) if known is None else one_hot(map(cell_word, cells), known))
    values = np.concatenate(parts, axis=1)
    check_numbers(values, seen.columns)
    inputs = torch.from_numpy(values.astype(np.float32))
    if seen.text is None:
        return inputs
    texts = text_inputs([row[seen.text] for row in rows], embed)
    return torch.cat([inputs, texts], dim=1) if seen.features else texts


def one_hot(words: Iterable[str], values: Sequence[str]) -> np.ndarray:
    """float32 [n, len(values)]; a word that is none of the values has zeros."""
    return np.array([[word == value for value in values] for word in words], dtype=np.float32)


def text_inputs(texts: Sequence[Any], embed: Embed) -> Tensor:
    for place, text in enumerate(texts, start=1):
        if not isinstance(text, str) or not text.strip() or not text.encode(errors="ignore").decode() == text:
            raise L2DError(f"query {place}: must be a string in UTF-8 that is not empty, not {str(text)[:40]!r}")
    return torch.from_numpy(embed(texts))


def array_inputs(array: np.ndarray, shape: Shape, columns: Sequence[str]) -> Tensor:
    """uint8 images [n, *shape] as they are; numbers [n, F] in the order of the columns as float32."""
    is_image = len(shape) == 3
    if array.shape[1:] != shape or not (array.dtype == np.uint8 if is_image else array.dtype.kind in "biuf"):
        kind, seen = "uint8" if is_image else "numbers", f" ({listed(columns)})" if columns else ""
        raise L2DError(f"queries: must be {kind} {['n', *shape]}{seen}, not {array.dtype} {list(array.shape)}")
    if is_image:
        return torch.from_numpy(np.ascontiguousarray(array))
    values = array.astype(np.float64)
    check_numbers(values, columns or [str(place) for place in range(1, shape[0] + 1)])
    return torch.from_numpy(values.astype(np.float32))


def image_inputs(files: Sequence[str | Path], shape: Shape, white: int) -> Tensor:
    images, bad = decode_images([Path(file).expanduser() for file in files], shape, white)
    if bad.any():
        raise L2DError(f"{files[int(bad.argmax())]}: {NO_IMAGE}")
    return images


def decode_images(files: Sequence[Path], shape: Shape, white: int = 255) -> tuple[Tensor, np.ndarray]:
    """uint8 [n, H, W, C], resized to `shape`, with `white` for white; and bool [n], true for missing or damaged files."""
    height, width, channels = shape

    def pixels(file: Path) -> np.ndarray | None:
        try:
            with Image.open(file) as image:
                small = image.convert(MODES[channels]).resize((width, height), Image.Resampling.BILINEAR)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
            return None
        found = np.asarray(small).reshape(shape)
        return found if white == 255 else np.rint(found * (white / 255)).astype(np.uint8)

    with ThreadPoolExecutor() as pool:  # disable=None: no bar in a log file
        found = list(tqdm(pool.map(pixels, files), desc="decoding images", total=len(files), disable=None))
    images = np.stack([np.zeros(shape, np.uint8) if image is None else image for image in found])
    return torch.from_numpy(images), np.array([image is None for image in found])


def check_numbers(values: np.ndarray, columns: Sequence[str]) -> None:
    """values float64 [n, F], NaN for what is not a number."""
    for row, place in np.argwhere(~(np.abs(values) <= LARGEST)).tolist():
        what = "empty or not a number" if np.isnan(values[row, place]) else "too large for 32 bits"
        raise L2DError(f"query {row + 1}: column {columns[place]}: {what}")
