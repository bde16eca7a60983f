"""The types of requests, and how a query is read from one."""

import base64
import binascii
import io
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Annotated, Any

import numpy as np
from PIL import Image
from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from l2d.data.inputs import MODES
from l2d.runs.artifact.exported import RouterDescription
from l2d.utils.errors import L2DError
from l2d.utils.text import listed

LONGEST_TEXT = 100_000  # characters that a router reads; a longer text loses its middle
START_SHARE = 0.25  # of them, from the start
MOST_INPUTS = 1_000
MOST_MESSAGES = 2_000
MOST_OUTCOMES = 10_000
MOST_PIXELS = 16_000_000
QUERY = ("text", "messages", "features", "image")
TEXTS = ("text", "input_text")  # types of parts of a message: of chats, of responses
# By kind of router.
READ = {"image": [{"image"}], "text": [{"text"}, {"messages"}, {"features"}], "row": [{"features"}]}
Message = dict[str, Any]
Messages = Annotated[list[Message], Field(fail_fast=True, min_length=1, max_length=MOST_MESSAGES)]
MOST_NUMBER = 1e9  # of prices and seconds: sums of more may not be finite
Price = Annotated[float, Field(ge=0, le=MOST_NUMBER)]
MOST_KEYS = 1_000  # that are looked at: pydantic makes an error of each that is wrong


def first_keys(given: Any) -> Any:
    return dict(islice(given.items(), MOST_KEYS)) if isinstance(given, dict) and len(given) > MOST_KEYS else given


ByExpert = Annotated[dict[str, Price], BeforeValidator(first_keys)]
Prices = ByExpert | Annotated[list[Price], Field(fail_fast=True)]  # or in the order of the experts


class StrictBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    _first_keys = model_validator(mode="before")(first_keys)


class QueryBody(StrictBody):
    """One query: a text, chat messages, features (by column or in the columns' order; a text may stand beside them), or an image
    (a base64 PNG or JPEG, or its pixels as nested lists)."""

    text: str | None = None
    messages: Messages | None = None
    features: dict[str, Any] | Annotated[list[float], Field(fail_fast=True)] | None = None
    image: str | list[Any] | None = None


class RouteBody(QueryBody):
    """One query, or many as `inputs`. prices, budget, confidence, raw: as of `l2d route`. available: who may be asked."""

    inputs: Annotated[list[QueryBody], Field(fail_fast=True, min_length=1, max_length=MOST_INPUTS)] | None = None
    prices: Prices | None = None
    budget: float | None = None
    confidence: float | None = None
    raw: bool = False
    available: Annotated[list[str], Field(fail_fast=True, min_length=1, max_length=MOST_KEYS)] | None = None


class PreviewBody(QueryBody):
    """One query, and prices to decide by, as of `l2d route`."""

    prices: Prices | None = None


DecisionId = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[!-~]+$")]  # no database refuses it


class OutcomeBody(StrictBody):
    """correct: true, false or a share; or cost, in units of one error, without the price. latency: seconds. expert: whose answer it
    is about, if not the one that was given."""

    decision_id: DecisionId
    correct: Annotated[float, Field(ge=0, le=1)] | bool | None = None
    cost: Price | None = None
    price: Price | None = None
    latency: Price | None = None
    expert: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00]+$")] | None = None


class OutcomesBody(StrictBody):
    outcomes: Annotated[list[OutcomeBody], Field(fail_fast=True, min_length=1, max_length=MOST_OUTCOMES)]


class AnswerBody(StrictBody):
    """The answer of the expert that was to be asked, or that it failed. length: in characters, of its whole output. price: of this
    call, if it is not the expected one."""

    expert: str
    answer: Annotated[str, Field(max_length=LONGEST_TEXT)] | int | float | None = None
    confidence: float | None = None
    length: Annotated[int, Field(ge=0, le=MOST_NUMBER)] | None = None
    failed: bool = False
    price: Price | None = None


One = Annotated[OutcomeBody, Tag("~one")]
Many = Annotated[OutcomesBody, Tag("~many")]
OneOrMany = Annotated[
    One | Many, Discriminator(lambda body: "~many" if isinstance(body, dict) and "outcomes" in body else "~one")
]


class ReloadBody(StrictBody):
    run: Annotated[str, Field(min_length=1, max_length=4096)]
    force: bool = False


def queries_of(body: RouteBody) -> list[QueryBody]:
    if body.inputs is None:
        return [body]
    if beside := [name for name in QUERY if getattr(body, name) is not None]:
        raise L2DError(f"inputs, {beside[0]}: give one query, or many as inputs")
    return body.inputs


def chat_query(messages: list[Message], features: Mapping[str, Any], about: RouterDescription) -> QueryBody:
    """The query in a chat request. features: by column; others than the router's are ignored."""
    seen = about.seen
    if lacking := [column for column in seen.features if column not in features]:
        where = "give it in the request's metadata, or in the header x-l2d-features"
        raise L2DError(f"metadata: no {listed(lacking)}; this router sees {about.sees}; {where}")
    columns = {column: features[column] for column in seen.features}
    return QueryBody(messages=None if columns and seen.text is None else messages, features=columns or None)


def read_query(body: QueryBody, about: RouterDescription) -> Any:
    """As `Router.route` takes it. Raises L2DError if the router sees something else, or not all of it."""
    given, seen = [name for name in QUERY if getattr(body, name) is not None], about.seen
    beside_text = about.kind == "row" and seen.text is not None
    read = [*READ[about.kind], *([{"features", "text"}, {"features", "messages"}] if beside_text else [])]
    if {*given} not in read:
        raise L2DError(f"{' and '.join(given) or 'no query'}: this router sees {about.sees}")
    if body.image is not None:
        return read_image(body.image, about.shape, seen.white)
    if isinstance(body.features, list):
        return read_row(body.features, about)
    row, text = body.features or {}, body.text if body.messages is None else last_question(body.messages)
    if text is not None:
        row = {**row, str(seen.text): without_the_middle(text)}
    if about.kind == "row":
        return row
    if not isinstance(text := row.get(str(seen.text)), str):
        raise L2DError(f"features: this router sees {about.sees}")
    return without_the_middle(text)


def read_row(numbers: list[float], about: RouterDescription) -> list[float]:
    """A row without the names of its columns."""
    seen = about.seen
    if seen.text is not None:
        raise L2DError(f"features: must be a mapping by column; this router sees {about.sees}")
    if len(numbers) != about.shape[0]:
        named = f" ({listed(seen.columns)})" if seen.features else ""
        raise L2DError(f"features: expected {about.shape[0]} numbers{named}; got {len(numbers)}")
    return numbers


def last_question(messages: Sequence[Message]) -> str:
    """The text of the last message of the user: its parts of type text, if it has several. Empty if there is none, as in a
    message that is an image alone."""
    for message in reversed(messages):
        if message.get("role") == "user":
            content = message.get("content")
            if isinstance(content, list):
                parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") in TEXTS]
                content = "\n".join(part for part in parts if isinstance(part, str))
            return content if isinstance(content, str) else ""
    return ""


def without_the_middle(text: str) -> str:
    """At most LONGEST_TEXT characters: a question is at the start or, more often, at the end."""
    if len(text) <= LONGEST_TEXT:
        return text
    start = int(START_SHARE * LONGEST_TEXT)
    return text[:start] + text[start - LONGEST_TEXT :]


def read_image(image: str | list[Any], shape: tuple[int, ...], white: int) -> np.ndarray:
    """uint8 [H, W, C]. A picture is resized to the shape; pixels must have it."""
    if isinstance(image, list):
        return read_pixels(image, shape, white)
    try:
        content = base64.b64decode(image.partition("base64,")[2] or image, validate=True)
        with Image.open(io.BytesIO(content), formats=("PNG", "JPEG")) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                raise L2DError(f"image: more than {MOST_PIXELS:,} pixels")
            small = picture.convert(MODES[shape[2]]).resize((shape[1], shape[0]), Image.Resampling.BILINEAR)
    except (binascii.Error, OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        raise L2DError("image: not a PNG or JPEG in base64") from None
    return np.rint(np.asarray(small).reshape(shape) * (white / 255)).astype(np.uint8)


def read_pixels(image: list[Any], shape: tuple[int, ...], white: int) -> np.ndarray:
    try:
        found = np.asarray(image)
    except ValueError:
        found = np.empty(0)
    if found.shape == shape[:2] and shape[2] == 1:
        found = found[..., None]
    if found.shape != shape or found.dtype.kind not in "iu" or not 0 <= found.min() <= found.max() <= white:
        raise L2DError(f"image: must be {'×'.join(map(str, shape))} whole numbers from 0 to {white}")
    return found.astype(np.uint8)
