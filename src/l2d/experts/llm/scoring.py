"""Which letter of a multiple-choice question a causal language model finds likeliest. Without a chat template the scored text is
the question, "Answer:" and " A". With one, the user's turn is the question and "Answer:", and the model's is "A", after the space
that the template puts before it. A letter's probability is that of the whole text, divided by the sum over all letters."""

import contextlib
import datetime as dt
import inspect
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jinja2 import TemplateError
from torch import Tensor
from tqdm import tqdm

from l2d.core.out_of_memory import is_out_of_memory
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.files import write_atomically
from l2d.utils.text import counted

SUFFIX = "Answer:"
PART = 128  # questions that are saved together: a kill loses at most this many
CHUNK = 2048  # questions whose tokens are in memory at once while lengths are measured
# Some templates write today's date into the question: answers would change every day. This is the date of Llama 3's template;
# transformers 5 has no argument for it.
DATE, TODAY = dt.date(2024, 7, 26), r"""strftime_now\(\s*(['"])(.*?)\1\s*\)"""


@dataclass(frozen=True)
class LetterOutcomes:
    """answers: int64 [n], the index of the likeliest letter, the first on ties. probabilities: float32 [n, letters], rows sum to
    1. tokens: int64 [n], length of the question as the model reads it. seconds: float64 [n], an equal share of the batch's."""

    answers: np.ndarray
    probabilities: np.ndarray
    tokens: np.ndarray
    seconds: np.ndarray


@dataclass(frozen=True)
class Question:
    """prefix: the tokens before the letter, the same for all letters. endings: per letter, the one or more tokens that follow."""

    prefix: list[int]
    endings: list[list[int]]


def score_letters(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    letters: Sequence[str],
    *,
    batch_size: int,
    progress: bool,
    chat: bool = False,
    parts: Path | None = None,
) -> LetterOutcomes:
    """One row per prompt, which contains its choices ("A. … B. …"). chat: use the chat template if there is one. parts: a folder
    for finished questions, from which the same call resumes."""
    if blank := [row for row, prompt in enumerate(prompts, start=1) if not prompt.strip()]:
        raise L2DError(f"question {blank[0]:,} of {len(prompts):,} is empty")
    lengths: list[int] = []
    # The tokens are made again later: those of 100,000 questions would take gigabytes.
    for start in range(0, len(prompts), CHUNK):
        questions = encode_questions(tokenizer, prompts[start : start + CHUNK], letters, chat=chat)
        check_lengths(model, questions)
        lengths += [len(question.prefix) for question in questions]
    # The longest first: little padding, and a lack of memory shows at once.
    order = sorted(range(len(prompts)), key=lambda i: (-lengths[i], i))
    done, title = list[dict[str, np.ndarray]](), Path(model_label(model)).name
    # disable=None: a bar only on a terminal
    with tqdm(total=len(order), desc=title, unit="question", disable=None if progress else True) as bar:
        for number, start in enumerate(range(0, len(order), PART)):
            rows = order[start : start + PART]
            file = None if parts is None else parts / f"{number:05d}.npz"
            found = None if file is None else read_part(file, rows)
            if found is None:
                asked = encode_questions(tokenizer, [prompts[i] for i in rows], letters, chat=chat)
                found = vars(letter_outcomes(model, asked, batch_size))
                if file is not None:
                    write_part(file, rows, found)
            done.append(found)
            bar.update(len(rows))
    place, names = np.argsort(np.array(order)), [field.name for field in fields(LetterOutcomes)]
    return LetterOutcomes(**{name: np.concatenate([one[name] for one in done])[place] for name in names})


def read_part(file: Path, rows: Sequence[int]) -> dict[str, np.ndarray] | None:
    """The arrays of a finished piece, if they are there, undamaged (the format has checksums), and of these rows."""
    if not file.exists():
        return None
    # A damaged file may raise anything.
    with contextlib.suppress(Exception), np.load(file, allow_pickle=False) as arrays:
        found = dict(arrays)
        if np.array_equal(found.pop("rows"), rows):
            return found
    print(f"{file}: damaged, or of other questions; making it again", file=sys.stderr)
    return None


def write_part(file: Path, rows: Sequence[int], arrays: Mapping[str, np.ndarray]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, lambda path: np.savez(path, rows=np.array(rows), **arrays))  # type: ignore[arg-type]


def encode_questions(tokenizer: Any, prompts: Sequence[str], letters: Sequence[str], *, chat: bool) -> list[Question]:
    chat = chat and getattr(tokenizer, "chat_template", None) is not None
    texts = [question_text(tokenizer, prompt, chat) for prompt in prompts]
    gap = gap_before(tokenizer, letters[0]) if chat else " "
    # A chat template writes a model's special tokens itself.
    whole = ([f"{text}{gap}{letter}" for text in texts] for letter in letters)
    variants = [tokenizer(one, add_special_tokens=not chat)["input_ids"] for one in whole]
    return [split_shared(list(map(list, sequences)), letters) for sequences in zip(*variants, strict=True)]


def question_text(tokenizer: Any, prompt: str, chat: bool) -> str:
    text = prompt.rstrip()
    text = text if text.endswith(SUFFIX) else f"{text}\n{SUFFIX}"
    return render_chat(tokenizer, [{"role": "user", "content": text}], opened=True) if chat else text


def gap_before(tokenizer: Any, letter: str) -> str:
    """The space that a chat template writes before the model's text. Llama 2 and Mistral have one, and learned to say " A"."""
    turns = [{"role": "user", "content": SUFFIX}, {"role": "assistant", "content": letter}]
    opening = render_chat(tokenizer, turns[:1], opened=True)
    try:
        whole = render_chat(tokenizer, turns, opened=False)
    except L2DError:  # a template for questions alone
        return ""
    gap, found, _ = whole.removeprefix(opening).partition(letter)
    return gap if found and whole.startswith(opening) and not gap.strip() else ""


def render_chat(tokenizer: Any, turns: list[dict[str, str]], *, opened: bool) -> str:
    """opened: with the opening of the model's turn at the end."""
    options = {"tokenize": False, "add_generation_prompt": opened, "date_string": DATE.strftime("%d %b %Y")}
    try:
        template = re.sub(TODAY, lambda call: repr(DATE.strftime(call[2])), tokenizer.get_chat_template())
        return str(tokenizer.apply_chat_template(turns, chat_template=template, **options))
    except TemplateError as error:
        reason = " ".join(str(error).split())[:200]
        problem = f"the template of {tokenizer.name_or_path} fails ({reason}); set it to false"
        raise ParameterError("chat", problem) from error


def split_shared(sequences: list[list[int]], letters: Sequence[str]) -> Question:
    """Split off the tokens that all sequences begin with. At least one token is left for every letter."""
    if len(set(map(tuple, sequences))) < len(sequences):
        raise ParameterError("letters", "the tokenizer encodes two of them identically; choose others", list(letters))
    equal = takewhile(lambda tokens: len({*tokens}) == 1, zip(*sequences, strict=False))
    shared = min(len([*equal]), min(map(len, sequences)) - 1)
    if not shared:
        raise ParameterError("letters", "the model's tokenizer puts no token before the letter", list(letters))
    return Question(sequences[0][:shared], [sequence[shared:] for sequence in sequences])


def check_lengths(model: Any, questions: Sequence[Question]) -> None:
    most = getattr(model.config, "max_position_embeddings", None)
    longest = max(len(question.prefix) + max(map(len, question.endings)) for question in questions)
    if most is not None and longest > most:
        problem = f"a question has {longest:,} tokens, but the model reads at most {most:,}; leave it out"
        raise L2DError(f"{model_label(model)}: {problem}")


def letter_outcomes(model: Any, questions: Sequence[Question], batch_size: int) -> LetterOutcomes:
    scores, seconds = list[Tensor](), list[float]()
    for start in range(0, len(questions), batch_size):
        batch, begun = questions[start : start + batch_size], time.perf_counter()
        try:
            scores.append(log_likelihoods(model, batch))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            told = f"{model_label(model)} runs out of memory with {counted(len(batch), 'question')} at a time"
            raise ParameterError("batch_size", f"{told}; lower it, or use a larger device", batch_size) from error
        seconds += [(time.perf_counter() - begun) / len(batch)] * len(batch)
    probabilities = torch.cat(scores).softmax(dim=1)
    if not probabilities.isfinite().all():
        raise ParameterError("dtype", f"the scores of {model_label(model)} are not finite; use float32")
    tokens = np.array([len(question.prefix) for question in questions], dtype=np.int64)
    answers = probabilities.numpy().argmax(axis=1)
    return LetterOutcomes(answers, probabilities.float().numpy(), tokens, np.array(seconds))


def log_likelihoods(model: Any, questions: Sequence[Question]) -> Tensor:
    """log P(ending | prefix), float64 [n, letters], on the CPU. Letters of one token share one forward pass."""
    rows: dict[tuple[int, tuple[int, ...]], int] = {}
    asked_for: list[tuple[int, list[int]]] = []
    for number, question in enumerate(questions):
        for ending in question.endings:
            row = rows.setdefault((number, (*question.prefix, *ending[:-1])), len(rows))
            asked_for.append((row, ending))
    keep = max(len(ending) for _, ending in asked_for)
    scores = last_logits(model, [tokens for _, tokens in rows], keep).log_softmax(dim=-1)
    wanted = []
    for spot, (row, ending) in enumerate(asked_for):
        wanted += [(row, keep - len(ending) + place, token, spot) for place, token in enumerate(ending)]
    *cell, spots = torch.tensor(wanted).T
    picked = scores[tuple(index.to(scores.device) for index in cell)].double().cpu()
    return torch.zeros(len(asked_for), dtype=torch.float64).index_add(0, spots, picked).view(len(questions), -1)


@torch.inference_mode()
def last_logits(model: Any, rows: Sequence[Sequence[int]], keep: int) -> Tensor:
    """The logits of the token after each of the last `keep` tokens: float32 [rows, keep, vocabulary]. Padding is on the left,
    so every row ends in the last column. Positions count from a row's own first token."""
    device = next(model.parameters()).device
    width = max(map(len, rows))
    tokens = torch.zeros(len(rows), width, dtype=torch.int64)  # any token pads: nothing attends to it
    mask = torch.zeros(len(rows), width, dtype=torch.int64)
    for number, row in enumerate(rows):
        tokens[number, width - len(row) :] = torch.tensor(row)
        mask[number, width - len(row) :] = 1
    given: dict[str, Any] = {"position_ids": (mask.cumsum(dim=1) - 1).clamp(min=0).to(device)}
    takes = inspect.signature(model.forward).parameters  # some models have neither
    extra = {key: value for key, value in {**given, "logits_to_keep": keep}.items() if key in takes}
    logits = model(input_ids=tokens.to(device), attention_mask=mask.to(device), use_cache=False, **extra).logits
    return logits[:, -keep:].float()


def model_label(model: Any) -> str:
    return str(getattr(model, "name_or_path", "") or type(model).__name__)
