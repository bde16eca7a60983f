"""Text as numbers for a router: hashed pieces of words, or cached embeddings of a frozen encoder. Light to import."""

import base64
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from tqdm import tqdm

from l2d.data.text.pretrained import asked_at_last, checked_config, identity_of, load_tokenizer, loading, locate
from l2d.utils.errors import ParameterError
from l2d.utils.files import alone, write_atomically
from l2d.utils.parameters import Annotated, Count, Ge, ProperShare

CHUNK = 10_000  # texts at a time, on all cores
HASHES = 256  # of words, and as many of pieces of words; with more, a router overfits a few thousand rows
MOST_WORDS, LONG = 20_000, 40  # words whose pieces are kept; longer ones are not
NOTHING = np.zeros(0, dtype=np.int16)


class Encoder:
    """Reads text for a router. learns: from the training texts. note: for the user, on the texts embedded last."""

    learns: bool = False
    note: str | None = None
    progress: bool = True

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """float32 features or int32 tokens [n, F], in an array of its own: it may be overwritten."""
        raise NotImplementedError

    def encode(self, texts: Sequence[str], data_dir: Path) -> np.ndarray:  # noqa: ARG002
        """Like `embed`. Slow encoders cache the result in data_dir."""
        found = self.embed(texts)
        say_once(self.note)
        return found

    def identity(self) -> str:
        """Different for encoders that have equal parameters but give different numbers."""
        return ""

    def fitted(self, texts: Sequence[str]) -> "Encoder":  # noqa: ARG002
        """The encoder that has learned from the training texts; itself if there is nothing to learn."""
        return self

    @property
    def state(self) -> dict[str, np.ndarray]:
        """The arrays that it has learned, which are kept with the router."""
        return {}

    def restored(self, state: Mapping[str, np.ndarray]) -> "Encoder":  # noqa: ARG002
        return self


def packed_state(encoder: Encoder | None) -> str:
    """As a log keeps it; empty if nothing was learned."""
    state = {} if encoder is None else encoder.state
    return base64.b64encode(safetensors.numpy.save(state)).decode() if state else ""


class Hashed(Encoder):
    """Words, pairs of words, and pieces of 3 to 5 letters within words, hashed; nothing is learned."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        if len(texts) <= CHUNK:
            return hashed(texts)
        found = np.empty((len(texts), 2 * HASHES), dtype=np.float32)
        for i, part in zip(range(0, len(texts), CHUNK), in_chunks(hashed, texts), strict=True):
            found[i : i + CHUNK] = part
        return found


def in_chunks(read: Callable[[Sequence[str]], Any], texts: Sequence[str]) -> Iterator[Any]:
    """Apply `read` to CHUNK texts at a time, on all cores."""
    from joblib import Parallel, cpu_count, delayed

    starts = range(0, len(texts), CHUNK)
    pool = Parallel(n_jobs=min(cpu_count(), len(starts)), return_as="generator")
    yield from pool(delayed(read)(texts[i : i + CHUNK]) for i in starts)


def hashed(texts: Sequence[str]) -> np.ndarray:
    """Hashed counts of words and pairs, then of pieces of words, each scaled to length 1: the numbers of scikit-learn's
    HashingVectorizer, which takes ten times as long for one text."""
    counts, (whole, pieces, known_pieces) = np.empty((len(texts), 2, 2 * HASHES), dtype=np.float32), hashers()
    for row, text in zip(counts, texts, strict=True):
        parts = [known_pieces(word) if len(word) <= LONG else pieces(word) for word in text.lower().split()]
        row[0] = np.bincount(whole(text), minlength=2 * HASHES)
        row[1] = np.bincount(np.concatenate([*parts, NOTHING]), minlength=2 * HASHES)
    signed = counts[..., :HASHES] - counts[..., HASHES:]
    lengths = np.sqrt(np.square(signed, dtype=np.float64).sum(axis=-1, keepdims=True))  # exact, in any order
    return (signed / np.maximum(lengths, 1)).astype(np.float32).reshape(len(texts), 2 * HASHES)


@cache
def hashers() -> tuple[Callable[[str], np.ndarray], ...]:
    """From a text to the places of its words and pairs; from a word to those of its pieces; the same for words that come again."""
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.utils import murmurhash3_32

    def place(piece: str) -> int:
        number = murmurhash3_32(piece)
        return abs(number) % HASHES + HASHES * (number < 0)  # what is subtracted has places of its own

    def read(pieces_of: Callable[[str], list[str]], text: str) -> np.ndarray:
        return np.array([*map(place, pieces_of(text))], dtype=np.int16)

    kinds = {"word": (1, 2), "char_wb": (3, 5)}
    analyzers = [HashingVectorizer(analyzer=kind, ngram_range=kinds[kind]).build_analyzer() for kind in kinds]
    whole, pieces = (partial(read, one) for one in analyzers)
    return whole, pieces, lru_cache(MOST_WORDS)(pieces)


class Embeddings(Encoder):
    """The mean of a frozen encoder's last states over the tokens of a text, scaled to length 1. model: minilm, an encoder's name on
    the hub, or a folder. start_share: see `without_middle`. Cached in data_dir/embeddings/, one file per set of texts."""

    def __init__(
        self, *, model: str, max_length: Annotated[int, Ge(8)], start_share: ProperShare, batch_size: Count
    ) -> None:
        self.model, self.max_length, self.start_share, self.batch_size = model, max_length, start_share, batch_size

    def encode(self, texts: Sequence[str], data_dir: Path) -> np.ndarray:
        identity = json.dumps([identity_of(self.model), self.max_length, self.start_share, list(texts)])
        file = data_dir / "embeddings" / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.npy"
        file.parent.mkdir(parents=True, exist_ok=True)
        with alone(file.with_suffix(".lock"), f"waiting for another process to embed {len(texts):,} texts"):
            if file.exists():
                try:
                    return np.asarray(np.load(file, allow_pickle=False))
                except (OSError, ValueError, EOFError):
                    print(f"{file}: damaged; embedding the texts again", file=sys.stderr)
            found = super().encode(texts, data_dir)
            write_atomically(file, lambda path: np.save(path, found, allow_pickle=False))
        return found

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """float32 [n, F]. Equal texts are embedded once."""
        import torch

        from l2d.core.out_of_memory import is_out_of_memory

        different = sorted(set(texts), key=lambda text: (len(text), text))  # batches of similar length: little padding
        batches = [different[i : i + self.batch_size] for i in range(0, len(different), self.batch_size)]
        hidden = True if not self.progress or len(batches) < 20 else None  # None: no bar in a log file
        lost: dict[str, int] = {}
        bar = tqdm(batches, desc=f"embedding {len(different):,} texts", disable=hidden)
        try:
            with torch.inference_mode():
                found = np.concatenate([self._mean_states(batch, lost) for batch in bar])
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise ParameterError("batch_size", "out of memory; lower it, or max_length", self.batch_size) from error
        self.note = note_of_cut([lost[text] for text in texts], self.max_length)
        rows = {text: i for i, text in enumerate(different)}
        return found[[rows[text] for text in texts]]

    def _mean_states(self, batch: list[str], lost: dict[str, int]) -> np.ndarray:
        """lost: tokens that each text lost; the batch's are added."""
        import torch
        from torch.nn.functional import normalize
        from torch.nn.utils.rnn import pad_sequence

        tokenizer, network = self._loaded
        whole = all_tokens(tokenizer, batch)
        rows = [torch.tensor(without_middle(one, self.max_length, self.start_share), dtype=torch.long) for one in whole]
        lost |= {text: len(one) - len(row) for text, one, row in zip(batch, whole, rows, strict=True)}
        device = next(network.parameters()).device
        # Padded on the right: positions are those of the text without padding. Any token can pad: the mask hides it.
        words = pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad_token_id or 0).to(device)
        mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True).to(device)
        states = network(input_ids=words, attention_mask=mask).last_hidden_state.float()
        weights = mask[..., None].float()
        return normalize((states * weights).sum(1) / weights.sum(1).clamp(min=1), dim=-1).cpu().numpy()

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        """Loaded once: loading takes longer than a thousand queries."""
        import torch

        tokenizer, network = load_encoder(self.model)
        return tokenizer, network.to("cuda" if torch.cuda.is_available() else "cpu").eval()

    def identity(self) -> str:
        return json.dumps(identity_of(self.model))


def load_encoder(model: str) -> tuple[Any, Any]:
    """Tokenizer and network. Errors name the parameter `model`."""
    import torch

    checked_config(model)
    tokenizer = load_tokenizer(model)
    with loading("model", model) as transformers:
        return tokenizer, asked_at_last(transformers.AutoModel.from_pretrained, locate(model), dtype=torch.float32)


def all_tokens(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """All tokens of each text, with its special tokens. verbose: else transformers warns of texts that we cut afterwards."""
    return tokenizer(list(texts), truncation=False, verbose=False)["input_ids"]


def without_middle(tokens: Sequence[int], most: int, start_share: float) -> Sequence[int]:
    """At most `most` tokens: the beginning, `start_share` of them, and the end, where a prompt has its question."""
    if len(tokens) <= most:
        return tokens
    start = max(1, int(most * start_share))
    return [*tokens[:start], *tokens[len(tokens) - most + start :]]


def note_of_cut(lost: Sequence[int], most: int) -> str | None:
    """lost: how many tokens each text lost."""
    if not (cut := [number for number in lost if number]):
        return None
    lengths = f"{sum(cut) / len(cut):,.0f} tokens on average, {max(cut):,} at most"
    return f"{len(cut):,} of {len(lost):,} texts have more than {most} tokens (max_length) and lost their middle: {lengths}"


@cache
def say_once(note: str | None) -> None:
    """The runs of a sweep read the same texts."""
    if note is not None:
        print(note, file=sys.stderr)
