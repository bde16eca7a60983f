"""Language models and tokenizers that are made in a moment, and a slow reference for their letters."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from l2d.experts.llm.experts import LLMExperts
from l2d.experts.llm.scoring import LetterOutcomes

LETTERS = ["A", "B", "C", "D"]
WORDS = ["what", "is", "the", "sum", "of", "two", "and", "three"]
WORDS += ["in", "a", "small", "world", "where", "rivers", "run", "north"]
CHAT = "{% for turn in messages %}<{{ turn['role'] }}>{{ turn['content'] }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"


def questions(number: int) -> list[str]:
    """Of 5 to 45 words, in no order."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(1, 40))) for _ in range(number)]
    return [f"{text}?\nA. one\nB. two\nC. three\nD. four" for text in texts]


@functools.cache
def make_tokenizer(chat: bool = False, size: int = 290) -> Any:
    """Byte-level BPE, hardly trained: letters and longer endings are one token or several. With more tokens, " A" is one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([*questions(20), *(f"Answer: {letter}" for letter in LETTERS * 9)], trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    made.chat_template = CHAT if chat else None
    return made


def make_model(seed: int) -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    sizes = {"vocab_size": 300, "hidden_size": 16, "intermediate_size": 32, "max_position_embeddings": 512}
    layers = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = Qwen2Config(**sizes, **layers, initializer_range=0.4)  # else all letters are equally likely
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(config).eval()


@torch.inference_mode()
def reference(model: Any, tokenizer: Any, prompts: list[str], letters: list[str], chat: bool) -> np.ndarray:
    """log P of the whole text with each letter, one at a time, token by token, nothing padded; then over the sum."""
    rows = []
    for prompt in prompts:
        totals = []
        for letter in letters:
            text = f"<user>{prompt}\nAnswer:<assistant>{letter}" if chat else f"{prompt}\nAnswer: {letter}"
            tokens = tokenizer(text)["input_ids"]
            scores = model(torch.tensor([tokens])).logits[0].double().log_softmax(dim=-1)
            totals.append(sum(float(scores[place - 1, tokens[place]]) for place in range(1, len(tokens))))
        weights = np.exp(np.array(totals) - max(totals))
        rows.append(weights / weights.sum())
    return np.array(rows)


class Wrapped:
    """The model, with `before` called on the number of rows of every batch. Its signature is the model's."""

    def __init__(self, model: Any, before: Callable[[int], None]) -> None:
        self.model, self.config, self.name_or_path = model, model.config, "tiny"
        self.before = before

    def parameters(self) -> Iterator[Any]:
        found: Iterator[Any] = self.model.parameters()
        return found

    @property
    def forward(self) -> Any:
        return self.model.forward

    def __call__(self, **arguments: Any) -> Any:
        self.before(len(arguments["input_ids"]))
        return self.model(**arguments)


def same(one: LetterOutcomes, other: LetterOutcomes) -> None:
    """Bit by bit, but for the clock."""
    for name in ("answers", "probabilities", "tokens"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


def experts(folders: list[Path], **options: Any) -> LLMExperts:
    given = {"seed": None, "letters": LETTERS, "chat": True, "dtype": "auto", "batch_size": 4, "table": None, **options}
    return LLMExperts(models=[str(folder) for folder in folders], **given)
