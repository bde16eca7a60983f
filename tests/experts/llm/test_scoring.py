"""The likeliest letter equals a slow reference, whatever the batches, kills and memory."""

import copy
import functools
import itertools
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.experts.llm.tiny_models import LETTERS, Wrapped, make_tokenizer, questions, reference, same

from l2d.experts.llm import scoring
from l2d.experts.llm.scoring import Question, encode_questions, log_likelihoods, question_text, score_letters
from l2d.utils.errors import L2DError, ParameterError


@pytest.mark.slow
@pytest.mark.parametrize(
    ("letters", "chat"),
    [(LETTERS, False), (LETTERS, True), (["one", "two", "three", "thirteen"], False), (["1", "10", "11"], True)],
)
def test_equals_a_slow_reference(model: Any, letters: list[str], chat: bool) -> None:
    """Letters of one token, of several, of different numbers of them, one the beginning of another; alone and padded."""
    tokenizer, prompts = make_tokenizer(chat), questions(7)
    expected = reference(model, tokenizer, prompts, letters, chat)
    assert expected.std(axis=0).max() > 1e-3  # the question matters
    for batch_size in (1, 4):
        found = score_letters(model, tokenizer, prompts, letters, batch_size=batch_size, progress=False, chat=chat)
        np.testing.assert_allclose(found.probabilities, expected, atol=1e-5)
        assert found.answers.tolist() == expected.argmax(axis=1).tolist()
        kinds = [values.dtype.name for values in vars(found).values()]
        assert kinds == ["int64", "float32", "int64", "float64"]
        assert (found.seconds > 0).all()


class Noted(torch.nn.Module):
    """A model that notes where its tokens are said to stand."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, input_ids: Any, position_ids: Any, **_: Any) -> Any:
        self.positions = position_ids.tolist()
        return SimpleNamespace(logits=torch.zeros(*input_ids.shape, 2))


def test_positions_are_counted_from_the_first_token_of_a_row() -> None:
    """Which stands at 0, as it did when the model was trained."""
    model = Noted()
    scoring.last_logits(model, [[7, 8, 9], [7, 8]], keep=1)
    assert model.positions == [[0, 1, 2], [0, 0, 1]]


class Chain(torch.nn.Module):
    """A model whose next token depends on the last one alone."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(6, 6, generator=torch.Generator().manual_seed(0)))

    def forward(self, input_ids: Any, **_: Any) -> Any:
        return SimpleNamespace(logits=self.table[input_ids])


def test_letters_of_different_lengths_by_hand() -> None:
    """log P(3 | 2) beside log P(4 | 2) + log P(5 | 4); the second question is longer."""
    model = Chain()
    questions = [Question([1, 2], [[3], [4, 5]]), Question([0, 2, 1], [[5], [0, 3]])]
    log_p = model.table.detach().double().log_softmax(dim=1)
    expected = [[log_p[2, 3], log_p[2, 4] + log_p[4, 5]], [log_p[1, 5], log_p[1, 0] + log_p[0, 3]]]
    torch.testing.assert_close(log_likelihoods(model, questions), torch.tensor(expected), rtol=0, atol=1e-5)


def test_tokens_are_those_of_the_question(model: Any) -> None:
    """The space before a letter is part of its token here, as in most tokenizers, or a token of its own that all share."""
    tokenizer, prompts = make_tokenizer(), questions(6)
    found = score_letters(model, tokenizer, prompts, LETTERS, batch_size=4, progress=False)
    whole = [len(tokenizer(f"{prompt}\nAnswer: A")["input_ids"]) for prompt in prompts]
    assert found.tokens.tolist() == [length - 1 for length in whole]


def test_what_is_scored() -> None:
    tokenizer = make_tokenizer(chat=True)
    assert question_text(tokenizer, "Q?\nA. x", chat=False) == "Q?\nA. x\nAnswer:"
    assert question_text(tokenizer, "Q?\nA. x\nAnswer: ", chat=False) == "Q?\nA. x\nAnswer:"
    assert question_text(None, "  def f():\n  ", chat=False) == "  def f():\nAnswer:"
    assert question_text(tokenizer, "Q?", chat=True) == "<user>Q?\nAnswer:<assistant>"
    for chat, whole in ((False, "Q?\nAnswer: B"), (True, "<user>Q?\nAnswer:<assistant>B")):
        (question,) = encode_questions(tokenizer, ["Q?"], LETTERS, chat=chat)
        assert tokenizer.decode(question.prefix + question.endings[1]) == whole


def test_special_tokens_are_written_once() -> None:
    """By the chat template where there is one, else by the tokenizer, which begins with "!" here."""
    from tokenizers.processors import TemplateProcessing

    tokenizer = copy.deepcopy(make_tokenizer(chat=True))
    special = [("!", tokenizer.convert_tokens_to_ids("!"))]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="! $A", special_tokens=special)
    for chat, start in ((False, "!Q?"), (True, "<user>Q?")):
        (question,) = encode_questions(tokenizer, ["Q?"], LETTERS, chat=chat)
        assert tokenizer.decode(question.prefix).startswith(start)


def with_template(template: str) -> Any:
    """name_or_path as from_pretrained leaves it."""
    tokenizer = copy.deepcopy(make_tokenizer(size=400))
    tokenizer.chat_template, tokenizer.name_or_path = template, "tiny"
    return tokenizer


def turns(assistant: str, opening: str = "") -> str:
    """A template with these words around the model's turn."""
    user = "[INST] {{ turn['content'] }} [/INST]"
    each = f"{{% if turn['role'] == 'user' %}}{user}{{% else %}}{assistant}{{% endif %}}"
    return f"{{% for turn in messages %}}{each}{{% endfor %}}{{% if add_generation_prompt %}}{opening}{{% endif %}}"


@pytest.mark.parametrize(
    ("template", "gap"),
    [
        (turns("{{ ' ' + turn['content'] + ' </s>' }}"), " "),  # Llama 2's
        (turns("<a>{{ turn['content'] }}</a>", "<a>"), ""),
        (turns("{{ '<a>\\n' + turn['content'] }}", "<a>"), "\n"),  # Zephyr's
        (turns("<a><think></think>{{ turn['content'] }}", "<a>"), ""),  # not what the model is asked to go on from
        (turns("<b>{{ turn['content'] }}", "<a>"), ""),
        (turns("{{ raise_exception('no answers') }}"), ""),
    ],
)
def test_letters_stand_where_the_template_puts_them(template: str, gap: str) -> None:
    tokenizer = with_template(template)
    assert scoring.gap_before(tokenizer, "A") == gap
    (question,) = encode_questions(tokenizer, ["Q?"], LETTERS, chat=True)
    opening = "<a>" if "<a>" in template else ""
    assert tokenizer.decode(question.prefix + question.endings[1]) == f"[INST] Q?\nAnswer: [/INST]{opening}{gap}B"
    if gap == " ":  # one token, the space being part of it
        assert [tokenizer.decode(ending) for ending in question.endings] == [f" {letter}" for letter in LETTERS]
        assert [len(ending) for ending in question.endings] == [1] * 4


def test_a_template_that_fails_is_named() -> None:
    for template, words in (
        ("{{ raise_exception('Only tools\nare served') }}", "Only tools are served"),
        ("{% for %}", "Expected an expression"),
        ("{{ messages[0]['a']['b'] }}", "has no attribute 'a'"),
    ):
        with pytest.raises(L2DError) as caught:
            encode_questions(with_template(template), ["Q?"], LETTERS, chat=True)
        assert str(caught.value).startswith("chat: the template of tiny fails (")
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)


def test_every_day_is_the_same_day() -> None:
    """As Llama 3 and Mistral write it."""
    for template in (
        "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}{{ date_string }}",
        '{% if strftime_now is defined %}{{ strftime_now( "%d %b %Y" ) }}{% endif %}',
        "{%- set today = strftime_now('%d') %}{{ today + strftime_now(' %b %Y') }}",
    ):
        text = question_text(with_template(template + " {{ messages[0]['content'] }}"), "Q?", chat=True)
        assert text == "26 Jul 2024 Q?\nAnswer:"


@pytest.mark.usefixtures("small_parts")
def test_few_tokens_are_held_at_once(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths by chunks of 4, answers by parts of 5, to the same result; empty questions are counted over all."""
    run = functools.partial(score_letters, model, make_tokenizer(), letters=LETTERS, batch_size=3, progress=False)
    whole, sizes = run(questions(13)), []

    def counted(tokenizer: Any, prompts: list[str], *others: Any, **options: Any) -> list[Question]:
        sizes.append(len(prompts))
        return encode_questions(tokenizer, prompts, *others, **options)

    monkeypatch.setattr(scoring, "encode_questions", counted)
    monkeypatch.setattr(scoring, "CHUNK", 4)
    same(run(questions(13)), whole)
    assert sizes == [4, 4, 4, 1, 5, 5, 3]
    for prompts, words in (
        ([*questions(6), " ", "a"], "question 7 of 8"),
        ([*questions(6), "a b " * 400], "at most 512"),
    ):
        with pytest.raises(L2DError, match=words):
            run(prompts)


def test_the_longest_question_comes_first(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a lack of memory shows at once."""
    seen: list[int] = []

    def noted(model: Any, batch: list[Question]) -> torch.Tensor:
        seen.extend(len(question.prefix) for question in batch)
        return log_likelihoods(model, batch)

    monkeypatch.setattr(scoring, "log_likelihoods", noted)
    found = score_letters(model, make_tokenizer(), questions(5), LETTERS, batch_size=2, progress=False)
    assert seen == sorted(found.tokens.tolist(), reverse=True)
    assert seen != found.tokens.tolist()


def test_split_shared_by_hand() -> None:
    """The longest beginning that all have, one token at least being left to each."""
    assert scoring.split_shared([[7, 8, 1], [7, 8, 2, 3]], ["A", "B"]) == Question([7, 8], [[1], [2, 3]])
    assert scoring.split_shared([[7, 1], [7, 1, 0]], ["1", "10"]) == Question([7], [[1], [1, 0]])
    with pytest.raises(L2DError, match=r"^letters=\['A', 'B'\]: .* identically"):
        scoring.split_shared([[7, 1], [7, 1]], ["A", "B"])
    with pytest.raises(L2DError, match=r"^letters=\['A', 'B'\]: .* no token before"):
        scoring.split_shared([[1], [2]], ["A", "B"])


def test_a_question_may_be_as_long_as_the_model_reads() -> None:
    """With its longest letter."""
    model = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=4), name_or_path="tiny")
    scoring.check_lengths(model, [Question([1, 2], [[3], [4, 5]])])
    with pytest.raises(L2DError, match=r"5 tokens.* 4"):
        scoring.check_lengths(model, [Question([1, 2], [[3], [4, 5, 6]]), Question([1], [[2], [3]])])


def test_seconds_are_an_equal_share_of_the_batchs(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which each batch takes a second: of three questions, two are asked at once."""
    monkeypatch.setattr(scoring, "time", SimpleNamespace(perf_counter=itertools.count().__next__))
    found = score_letters(model, make_tokenizer(), questions(3), LETTERS, batch_size=2, progress=False)
    assert sorted(found.seconds) == [0.5, 0.5, 1]


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (torch.OutOfMemoryError("no"), ParameterError, "^batch_size=2: tiny .*memory.* 2 questions"),
        (RuntimeError("shapes differ"), RuntimeError, "shapes differ"),
    ],
)
def test_out_of_memory_and_other_errors(model: Any, error: Exception, kind: type[Exception], words: str) -> None:
    def before(_: int) -> None:
        raise error

    with pytest.raises(kind, match=words):
        score_letters(Wrapped(model, before), make_tokenizer(), questions(3), LETTERS, batch_size=2, progress=False)


def test_scores_that_are_not_finite(model: Any) -> None:
    broken = copy.deepcopy(model)
    with torch.no_grad():
        broken.lm_head.weight.fill_(float("inf"))
    with pytest.raises(ParameterError, match=r"^dtype: .*float32"):
        score_letters(broken, make_tokenizer(), questions(3), LETTERS, batch_size=2, progress=False)


def test_a_bar_only_on_a_terminal(
    model: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for progress, terminal in ((True, True), (True, False), (False, True)):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal, raising=False)
        score_letters(model, make_tokenizer(), questions(2), LETTERS, batch_size=2, progress=progress)
        assert ("question" in capsys.readouterr().err) == (progress and terminal)
