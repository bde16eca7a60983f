"""What a router sees, as a tensor: from a table, or from rows, texts and images by themselves."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from l2d.data.arrays import Seen
from l2d.data.sheet import Sheet, cell_number, listed
from l2d.utils.errors import L2DError

Embed = Callable[[Sequence[str]], np.ndarray]
Shape = tuple[int, ...]
MODES = {1: "L", 3: "RGB"}  # Pillow's, by the number of channels
LARGEST = float(np.finfo(np.float32).max)


def sheet_inputs(sheet: Sheet, seen: Seen, shape: Shape, embed: Embed) -> Tensor:
    """float32 [n, F], int32 [n, L] if `embed` gives tokens, or uint8 images [n, *shape]. The sheet has the columns of `seen`."""
    if seen.image is not None:
        return read_images(sheet, seen.image, shape)
    parts = [feature_column(sheet, column)[:, None] for column in seen.features]
    if seen.text is not None:
        parts.append(embed(sheet.texts(seen.text)))
    return torch.from_numpy(np.concatenate(parts, axis=1))


def feature_column(sheet: Sheet, column: str) -> np.ndarray:
    values = sheet.numbers(column)
    sheet.refuse(column, "too large for 32 bits", np.abs(values) > LARGEST)
    return values.astype(np.float32)


def read_images(sheet: Sheet, column: str, shape: Shape) -> Tensor:
    """uint8 [n, *shape]; paths that are not absolute start at the table's folder."""
    files = [sheet.path.parent / Path(text).expanduser() for text in sheet.texts(column)]
    sheet.refuse(column, "no such file", np.array([not _is_file(file) for file in files]))
    images = decode_images(files, shape)
    sheet.refuse(column, "not an image that can be read", np.array([image is None for image in images]))
    return torch.from_numpy(np.stack([image for image in images if image is not None]))


def row_inputs(rows: Sequence[Mapping[str, object]], seen: Seen, embed: Embed) -> Tensor:
    """float32 [n, F] from rows by column; columns that the router does not see are ignored."""
    for place, row in enumerate(rows, start=1):
        for column in (*seen.features, *([seen.text] if seen.text is not None else [])):
            if column not in row:
                raise L2DError(f"query {place}: has no {column}; there are {listed(list(row))}")
    values = np.array([[cell_number(row[column]) for column in seen.features] for row in rows], dtype=np.float64)
    check_numbers(values, seen.features)
    parts = [values.astype(np.float32)] if seen.features else []
    if seen.text is not None:
        texts = [row[seen.text] for row in rows]
        check_texts(texts)
        parts.append(embed([str(text) for text in texts]))
    return torch.from_numpy(np.concatenate(parts, axis=1))


def text_inputs(texts: Sequence[str], embed: Embed) -> Tensor:
    check_texts(texts)
    return torch.from_numpy(embed(texts))


def array_inputs(array: np.ndarray, shape: Shape, columns: Sequence[str]) -> Tensor:
    """uint8 images [n, *shape] as they are; numbers [n, F] in the order of the columns as float32."""
    if len(shape) == 3:
        if array.dtype != np.uint8 or array.shape[1:] != shape:
            raise L2DError(f"queries: must be uint8 {['n', *shape]}, not {array.dtype} {list(array.shape)}")
        return torch.from_numpy(np.ascontiguousarray(array))
    if array.ndim != 2 or array.shape[1:] != shape or array.dtype.kind not in "biuf":
        seen = f" ({listed(columns)})" if columns else ""
        raise L2DError(f"queries: must be numbers {['n', *shape]}{seen}, not {array.dtype} {list(array.shape)}")
    values = array.astype(np.float64)
    check_numbers(values, columns or [str(place) for place in range(1, shape[0] + 1)])
    return torch.from_numpy(values.astype(np.float32))


def image_inputs(files: Sequence[str | Path], shape: Shape, white: int) -> Tensor:
    """uint8 [n, *shape]."""
    paths = [Path(file).expanduser() for file in files]
    for path in paths:
        if not _is_file(path):
            raise L2DError(f"{path}: no such file")
    images = decode_images(paths, shape, white)
    for path, image in zip(paths, images, strict=True):
        if image is None:
            raise L2DError(f"{path}: not an image that can be read")
    return torch.from_numpy(np.stack([image for image in images if image is not None]))


def decode_images(files: Sequence[Path], shape: Shape, white: int = 255) -> list[np.ndarray | None]:
    """Each image as uint8 [H, W, C], squeezed to that size, white as `white`; None for what is not an image."""
    height, width, channels = shape

    def pixels(file: Path) -> np.ndarray | None:
        try:
            with Image.open(file) as image:
                small = image.convert(MODES[channels]).resize((width, height), Image.Resampling.BILINEAR)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
            return None
        found = np.asarray(small).reshape(shape)
        return found if white == 255 else np.rint(found * (white / 255)).astype(np.uint8)

    with ThreadPoolExecutor() as pool:
        return list(tqdm(pool.map(pixels, files), desc="decoding images", total=len(files), disable=None))


def check_texts(texts: Sequence[object]) -> None:
    for place, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise L2DError(f"query {place}: must be a text, not {type(text).__name__}")
        if not text.strip():
            raise L2DError(f"query {place}: the text is empty")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise L2DError(f"query {place}: not UTF-8 at character {error.start + 1}") from None


def check_numbers(values: np.ndarray, columns: Sequence[str]) -> None:
    """values float64 [n, F]. What is not a number is NaN here."""
    wrong = np.argwhere(~(np.abs(values) <= LARGEST))
    if len(wrong):
        row, place = wrong[0].tolist()
        what = "empty or not a number" if np.isnan(values[row, place]) else "too large for 32 bits"
        raise L2DError(f"query {row + 1}: column {columns[place]}: {what}")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a text too long for a name
        return False
