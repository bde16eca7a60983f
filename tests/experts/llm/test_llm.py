"""Language models as experts: their letters equal a slow reference, whatever the batches, kills, damage and memory."""

import copy
import functools
import hashlib
import json
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.running import assembled

from l2d.commands.experts import made
from l2d.config import compose
from l2d.data.arrays import Arrays, Panel
from l2d.data.sets.table import Table
from l2d.data.sheet import read_sheet, write_sheet
from l2d.experts.cache import Cache
from l2d.experts.llm import experts as llm
from l2d.experts.llm import scoring as llm_scoring
from l2d.experts.llm.experts import Asked, LLMExperts, fingerprint_of_texts, outcomes_table
from l2d.experts.llm.models import fingerprint, load, parse
from l2d.experts.llm.scoring import Outcomes, Question, asked, encode, gap_before, score_letters, split_shared
from l2d.experts.request import Machine, Request
from l2d.routing.build import make_dataset
from l2d.routing.fingerprints import data_fingerprint as run_fingerprint
from l2d.routing.make import make
from l2d.utils.errors import L2DError

LETTERS = ["A", "B", "C", "D"]
WORDS = [
    "what",
    "is",
    "the",
    "sum",
    "of",
    "two",
    "and",
    "three",
    "in",
    "a",
    "small",
    "world",
    "where",
    "rivers",
    "run",
    "north",
]
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

    config = Qwen2Config(
        vocab_size=300,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        initializer_range=0.4,  # else all letters are equally likely
    )
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(config).eval()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two models of one tokenizer, as save_pretrained leaves them."""
    found = []
    for seed, name in enumerate(("large", "small")):
        folder = tmp_path_factory.mktemp("models") / name
        make_model(seed).save_pretrained(folder)
        make_tokenizer(chat=name == "large").save_pretrained(folder)
        found.append(folder)
    return found


@pytest.fixture(scope="module")
def model() -> Any:
    return make_model(0)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm_scoring, "PART", 5)


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


@pytest.mark.parametrize(
    ("letters", "chat"),
    [(LETTERS, False), (LETTERS, True), (["one", "two", "three", "thirteen"], False), (["1", "10", "11"], True)],
)
def test_equals_a_slow_reference(model: Any, letters: list[str], chat: bool) -> None:
    """Letters of one token, of several, of different numbers of them, one the beginning of another; alone and padded."""
    tokenizer, prompts = make_tokenizer(chat), questions(13)
    expected = reference(model, tokenizer, prompts, letters, chat)
    assert expected.std(axis=0).max() > 1e-3  # the question matters
    for batch_size in (1, 4, 64):
        found = score_letters(model, tokenizer, prompts, letters, batch_size=batch_size, progress=False, chat=chat)
        np.testing.assert_allclose(found.probabilities, expected, atol=1e-5)
        assert found.answers.tolist() == expected.argmax(axis=1).tolist()
        kinds = [values.dtype.name for values in found.arrays().values()]
        assert kinds == ["int64", "float32", "int64", "float64"]
        assert (found.seconds > 0).all()


def test_tokens_are_those_of_the_question(model: Any) -> None:
    """The space before a letter is part of its token here, as in most tokenizers, or a token of its own that all share."""
    tokenizer, prompts = make_tokenizer(), questions(6)
    found = score_letters(model, tokenizer, prompts, LETTERS, batch_size=4, progress=False)
    whole = [len(tokenizer(f"{prompt}\nAnswer: A")["input_ids"]) for prompt in prompts]
    assert found.tokens.tolist() == [length - 1 for length in whole]


def test_what_is_scored() -> None:
    tokenizer = make_tokenizer(chat=True)
    assert asked(tokenizer, "Q?\nA. x", chat=False) == "Q?\nA. x\nAnswer:"
    assert asked(tokenizer, "Q?\nA. x\nAnswer: ", chat=False) == "Q?\nA. x\nAnswer:"
    assert asked(tokenizer, "Q?", chat=True) == "<user>Q?\nAnswer:<assistant>"
    for chat, whole in ((False, "Q?\nAnswer: B"), (True, "<user>Q?\nAnswer:<assistant>B")):
        (question,) = encode(tokenizer, ["Q?"], LETTERS, chat=chat)
        assert tokenizer.decode(question.prefix + question.endings[1]) == whole


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
    assert gap_before(tokenizer, "A") == gap
    (question,) = encode(tokenizer, ["Q?"], LETTERS, chat=True)
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
            encode(with_template(template), ["Q?"], LETTERS, chat=True)
        assert str(caught.value).startswith("experts.models=tiny: its chat template fails (")
        assert words in str(caught.value)
        assert str(caught.value).endswith("use experts.chat=false")
        assert "\n" not in str(caught.value)


def test_every_day_is_the_same_day() -> None:
    """As Llama 3 and Mistral write it."""
    for template in (
        "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}{{ date_string }}",
        '{% if strftime_now is defined %}{{ strftime_now( "%d %b %Y" ) }}{% endif %}',
        "{%- set today = strftime_now('%d') %}{{ today + strftime_now(' %b %Y') }}",
    ):
        text = asked(with_template(template + " {{ messages[0]['content'] }}"), "Q?", chat=True)
        assert text == "26 Jul 2024 Q?\nAnswer:"


@pytest.mark.usefixtures("small_parts")
def test_few_tokens_are_held_at_once(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths by chunks of 4, answers by parts of 5, to the same result; empty questions are counted over all."""
    run = functools.partial(score_letters, model, make_tokenizer(), letters=LETTERS, batch_size=3, progress=False)
    whole, sizes = run(questions(13)), []

    def counted(tokenizer: Any, prompts: list[str], *others: Any, **options: Any) -> list[Question]:
        sizes.append(len(prompts))
        return encode(tokenizer, prompts, *others, **options)

    monkeypatch.setattr(llm_scoring, "encode", counted)
    monkeypatch.setattr(llm_scoring, "CHUNK", 4)
    same(run(questions(13)), whole)
    assert sizes == [4, 4, 4, 1, 5, 5, 3]
    with pytest.raises(L2DError, match="question 7 of 8 is empty"):
        run([*questions(6), " ", "a"])
    with pytest.raises(L2DError, match="the model reads 512"):
        run([*questions(6), "a b " * 400])


def test_without_a_template_chat_is_plain(model: Any) -> None:
    plain = make_tokenizer()
    one, other = (
        score_letters(model, plain, questions(3), LETTERS, batch_size=2, progress=False, chat=c) for c in (True, False)
    )
    assert np.array_equal(one.probabilities, other.probabilities)


def test_split_shared_by_hand() -> None:
    """The longest beginning that all have, one token at least being left to each."""
    assert split_shared([[7, 8, 1], [7, 8, 2, 3]], ["A", "B"]) == Question([7, 8], [[1], [2, 3]])
    assert split_shared([[7, 1], [7, 1, 0]], ["1", "10"]) == Question([7], [[1], [1, 0]])
    with pytest.raises(L2DError, match="not all different"):
        split_shared([[7, 1], [7, 1]], ["A", "B"])
    with pytest.raises(L2DError, match="nothing stands before"):
        split_shared([[1], [2]], ["A", "B"])


def test_questions_that_cannot_be_asked(model: Any) -> None:
    tokenizer = make_tokenizer()
    for prompts, words in (
        ([], "no questions"),
        (["a", " "], "question 2 of 2"),
        (["a b " * 400], "the model reads 512"),
    ):
        with pytest.raises(L2DError, match=words):
            score_letters(model, tokenizer, prompts, LETTERS, batch_size=2, progress=False)


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


def same(one: Outcomes, other: Outcomes) -> None:
    """Bit by bit, but for the clock."""
    for name in ("answers", "probabilities", "tokens"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("stop", [0, 1, 4, 6])
def test_broken_off_and_gone_on_with(model: Any, tmp_path: Path, stop: int) -> None:
    """23 questions, parts of 5 in batches of 3 and 2, the last of 3; broken off in the batch `stop`, those of whole parts are not asked again."""
    tokenizer, prompts = make_tokenizer(), questions(23)
    batches: list[int] = []

    def before(size: int) -> None:
        if len(batches) == stop:
            raise KeyboardInterrupt
        batches.append(size)

    run = functools.partial(
        score_letters, tokenizer=tokenizer, prompts=prompts, letters=LETTERS, batch_size=3, progress=False
    )
    unbroken = run(model)
    with pytest.raises(KeyboardInterrupt):
        run(Wrapped(model, before), parts=tmp_path)
    again: list[int] = []
    same(run(Wrapped(model, again.append), parts=tmp_path), unbroken)
    assert len(again) == 9 - 2 * (stop // 2)
    again.clear()
    same(run(Wrapped(model, again.append), parts=tmp_path), unbroken)
    assert not again


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(
    "damage", [flip_a_bit, lambda file: file.write_bytes(b""), lambda file: file.write_bytes(b"PK")]
)
def test_a_damaged_part_is_noticed(
    model: Any, tmp_path: Path, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    run = functools.partial(
        score_letters, tokenizer=make_tokenizer(), prompts=questions(12), letters=LETTERS, batch_size=5, progress=False
    )
    whole = run(model, parts=tmp_path)
    damage(sorted(tmp_path.iterdir())[1])
    again: list[int] = []
    same(run(Wrapped(model, again.append), parts=tmp_path), whole)
    assert again == [5]
    assert "damaged" in capsys.readouterr().err


@pytest.mark.usefixtures("small_parts")
def test_parts_of_other_questions_are_not_taken(model: Any, tmp_path: Path) -> None:
    """Another order of lengths, as another tokenizer would give, makes other parts."""
    tokenizer, prompts = make_tokenizer(), questions(12)
    run = functools.partial(score_letters, model, tokenizer, letters=LETTERS, batch_size=5, progress=False)
    run(prompts, parts=tmp_path)
    same(run(prompts[::-1], parts=tmp_path), run(prompts[::-1]))


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("no"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_out_of_memory_means_smaller_batches(model: Any, error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    sizes: list[int] = []

    def before(size: int) -> None:
        sizes.append(size)
        if size > 3:
            raise error

    tokenizer, prompts = make_tokenizer(), questions(10)
    run = functools.partial(score_letters, tokenizer=tokenizer, prompts=prompts, letters=LETTERS, progress=False)
    found, plain = run(Wrapped(model, before), batch_size=8), run(model, batch_size=8)
    np.testing.assert_allclose(found.probabilities, plain.probabilities, atol=1e-5)
    assert found.answers.tolist() == plain.answers.tolist()
    assert sizes == [8, 4, 2, 2, 2, 2, 2]
    said = capsys.readouterr().err
    assert "tiny: out of memory with 8 questions at a time; going on with 4" in said
    assert "going on with 2" in said


def test_out_of_memory_with_one_question(model: Any) -> None:
    def before(_: int) -> None:
        raise torch.OutOfMemoryError("no")

    with pytest.raises(L2DError, match=r"tiny: out of memory with a single question of \d+ tokens"):
        score_letters(Wrapped(model, before), make_tokenizer(), questions(3), LETTERS, batch_size=2, progress=False)


def test_other_errors_are_not_hidden(model: Any) -> None:
    def before(_: int) -> None:
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        score_letters(Wrapped(model, before), make_tokenizer(), questions(3), LETTERS, batch_size=2, progress=False)


@pytest.mark.usefixtures("small_parts")
def test_a_smaller_batch_is_kept_over_a_kill(model: Any, tmp_path: Path) -> None:
    """The longest 5 need batches of 2; broken off after them, the others get batches of 2 as well, as if unbroken."""
    run = functools.partial(
        score_letters, tokenizer=make_tokenizer(), prompts=questions(20), letters=LETTERS, batch_size=5, progress=False
    )

    def memory(least: int, stop: int) -> tuple[Callable[[int], None], list[int]]:
        sizes: list[int] = []

        def before(size: int) -> None:
            if len(sizes) == stop:
                raise KeyboardInterrupt
            sizes.append(size)
            if size > least and len(sizes) < 3:
                raise torch.OutOfMemoryError("no")

        return before, sizes

    unbroken, _ = memory(2, 99)
    broken, _ = memory(2, 6)
    with pytest.raises(KeyboardInterrupt):
        run(Wrapped(model, broken), parts=tmp_path)
    roomy: list[int] = []
    same(run(Wrapped(model, roomy.append), parts=tmp_path), run(Wrapped(model, unbroken)))
    assert max(roomy) == 2


def arrays(prompts: list[str], train: int = 9) -> Arrays:
    labels = torch.arange(len(prompts)) % 4
    blank = torch.zeros(len(prompts), 1)
    return Arrays(
        blank[:train], labels[:train], blank[train:], labels[train:], 4, texts=(prompts[:train], prompts[train:])
    )


def request(folder: Path, data: Arrays, **cache: Any) -> Request:
    return Request(
        data, torch.arange(5), None, 0, Cache(folder / "experts", "x", {"seed": 1}, **cache), Path(), Machine()
    )


def experts(folders: list[Path], **options: Any) -> LLMExperts:
    given = {"seed": None, "letters": LETTERS, "chat": True, "dtype": "auto", "batch_size": 4, "table": None, **options}
    return LLMExperts(models=[str(folder) for folder in folders], **given)


def predictions(panel: Panel) -> list[list[int]]:
    assert panel.train.predictions is not None
    assert panel.test.predictions is not None
    return torch.cat([panel.train.predictions, panel.test.predictions]).tolist()


def test_the_panel(folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The letters of the slow reference; errors are 1 where they are not the label; a second time no model is loaded."""
    prompts = questions(14)
    data = arrays(prompts)
    panel = experts(folders).panel(request(tmp_path, data))
    expected = []
    for folder, chat in zip(folders, (True, False), strict=True):
        model, tokenizer = load(parse(str(folder)), "float32", torch.device("cpu"), progress=False)
        expected.append(reference(model, tokenizer, prompts, LETTERS, chat).argmax(axis=1))
    assert panel.names == ("large", "small")
    assert predictions(panel) == np.stack(expected, axis=1).tolist()
    for answers, labels in ((panel.train, data.train_labels), (panel.test, data.test_labels)):
        assert answers.predictions is not None
        assert answers.errors.tolist() == (answers.predictions != labels[:, None]).double().tolist()
    monkeypatch.setattr(llm, "load", lambda *_, **__: pytest.fail("loaded although its answers are there"))
    assert (
        predictions(experts(folders[::-1]).panel(request(tmp_path, data))) == np.stack(expected[::-1], axis=1).tolist()
    )
    entries = sorted((tmp_path / "experts").iterdir())
    assert [entry.name.rpartition("-")[0] for entry in entries] == ["llm-large", "llm-small"]
    assert not [entry for entry in entries if (entry / "parts").exists()]


@pytest.mark.slow
@pytest.mark.usefixtures("small_parts")
def test_a_killed_panel_goes_on(folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its finished parts lie in the entry, and with renew are forgotten."""
    data = arrays(questions(14))
    sizes: list[int] = []
    whole = experts(folders[:1]).panel(request(tmp_path / "whole", data))
    scored = llm_scoring.log_likelihoods

    def count(stop: int) -> Callable[..., Any]:
        def wrapped(model: Any, batch: Any) -> Any:
            if len(sizes) == stop:
                raise KeyboardInterrupt
            sizes.append(len(batch))
            return scored(model, batch)

        return wrapped

    monkeypatch.setattr(llm_scoring, "log_likelihoods", count(4))
    with pytest.raises(KeyboardInterrupt):
        experts(folders[:1]).panel(request(tmp_path, data))
    assert len(list(tmp_path.glob("experts/*/parts/*.npz"))) == 2
    assert not list(tmp_path.glob("experts/*/entry.json"))
    monkeypatch.setattr(llm_scoring, "log_likelihoods", count(99))
    assert predictions(experts(folders[:1]).panel(request(tmp_path, data))) == predictions(whole)
    assert sizes == [4, 1, 4, 1, 4]
    experts(folders[:1]).panel(request(tmp_path, data, renew=True))
    assert sizes == [4, 1, 4, 1, 4, 4, 1, 4, 1, 4]


def test_two_at_once_ask_once(folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, loaded = arrays(questions(14)), []

    def slow(*arguments: Any, **options: Any) -> Any:
        loaded.append(arguments)
        time.sleep(0.3)
        return load(*arguments, **options)

    monkeypatch.setattr(llm, "load", slow)
    found: list[Panel] = []
    threads = [
        threading.Thread(target=lambda: found.append(experts(folders[:1]).panel(request(tmp_path, data))))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loaded) == 1
    assert len(found) == 3
    assert len({json.dumps(predictions(panel)) for panel in found}) == 1


def test_what_makes_another_entry(folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place of a folder does not; weights, dtype, letters, chat and questions do."""
    data = arrays(questions(14))
    blank = Outcomes(np.zeros(14, dtype=np.int64), np.zeros((14, 4)), np.zeros(14), np.zeros(14))
    monkeypatch.setattr(llm, "score_letters", lambda *_, **__: blank)
    monkeypatch.setattr(llm, "free_memory", lambda: None)

    def entries(*chosen: Path, data: Arrays = data, **options: Any) -> int:
        experts(list(chosen), **options).panel(request(tmp_path, data))
        return len(list(tmp_path.glob("experts/*")))

    moved = tmp_path / "elsewhere" / "large"
    moved.parent.mkdir()
    moved.symlink_to(folders[0])
    assert entries(folders[0]) == 1
    assert entries(moved) == 1
    assert entries(folders[0], batch_size=3) == 1
    assert entries(folders[0], chat=False) == 2
    assert entries(folders[0], dtype="bfloat16") == 3
    assert entries(folders[0], letters=["D", "C", "B", "A"]) == 4
    assert entries(folders[0], data=arrays(questions(14)[::-1])) == 5
    assert entries(folders[1]) == 6


def test_fingerprints(folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(bytes(100))
    seen = {fingerprint(tmp_path), fingerprint(folders[0])}
    (tmp_path / "README.md").write_text("words")
    seen.add(fingerprint(tmp_path))
    assert len(seen) == 2
    read: list[str] = []
    digest = hashlib.file_digest

    def counted(file: Any, kind: str) -> Any:
        read.append(Path(file.name).name)
        return digest(file, kind)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    for time_ns, place in enumerate((3, 50, 97)):  # the middle as well as the ends
        content = bytearray(100)
        content[place] = 1
        (tmp_path / "model.safetensors").write_bytes(content)
        os.utime(tmp_path / "model.safetensors", ns=(time_ns, time_ns))  # writes may be within one tick of the clock
        seen |= {fingerprint(tmp_path), fingerprint(tmp_path)}
    assert len(seen) == 5
    assert read == ["model.safetensors"] * 3  # once each, and what has not changed not at all
    assert fingerprint_of_texts(["ab", "c"]) != fingerprint_of_texts(["a", "bc"])


def test_other_weights_in_the_same_folder_are_other_experts(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is loaded to tell; where the folder lies does not matter, and of the hub's models only the name is known."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    folder = tmp_path / "large"
    shutil.copytree(folders[0], folder)
    before = experts([folder, folders[1]]).identity()
    assert before == experts(folders).identity()
    assert before != experts(folders[::-1]).identity()
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    assert experts([folder, folders[1]]).identity() != before
    hub = experts([Path("Qwen/Qwen2.5-7B-Instruct@main")]).identity()
    assert json.loads(hub)[1:] == [{"model": "Qwen/Qwen2.5-7B-Instruct", "revision": "main"}]


def test_names() -> None:
    named = parse("Qwen/Qwen2.5-7B-Instruct@a09a354")
    assert (named.source, named.revision, named.short) == ("Qwen/Qwen2.5-7B-Instruct", "a09a354", "Qwen2.5-7B-Instruct")
    assert named.identity() == {"model": "Qwen/Qwen2.5-7B-Instruct", "revision": "a09a354"}
    assert parse("gpt2").revision is None
    for wrong in ("./nowhere", "/no/such/folder", "a/b/c", ""):
        with pytest.raises(L2DError, match="no such folder"):
            parse(wrong)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"letters": ["A"]}, r"experts\.letters"),
        ({"letters": ["A", "A"]}, r"experts\.letters"),
        ({"letters": ["A", "B"]}, r"experts\.letters=.*labels go from 0 to 3"),
        ({"dtype": "float8"}, r"experts\.dtype=float8: unknown"),
        ({"batch_size": 0}, r"experts\.batch_size=0"),
        ({"table": "out.xlsx"}, r"experts\.table=out\.xlsx"),
    ],
)
def test_bad_values(folders: list[Path], tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(L2DError, match=words):
        experts(folders, **options).panel(request(tmp_path, arrays(questions(14))))


def test_what_is_refused(folders: list[Path], tmp_path: Path) -> None:
    data = arrays(questions(14))
    asked_for = request(tmp_path, data)
    for change, words in (
        ({"arrays": replace(data, texts=None)}, "^experts=llm: needs a dataset of questions with text"),
        ({"arrays": replace(data, texts=(["a"], ["b"]))}, "1 questions but 9 labels"),
        ({"arrays": replace(data, train_labels=data.train_labels - 1)}, "labels go from -1"),
        ({"coverage": [0.5, 0.5]}, r"setup\.coverage"),
    ):
        with pytest.raises(L2DError, match=words):
            experts(folders).panel(replace(asked_for, **change))
    with pytest.raises(L2DError, match="more than one is called large"):
        experts([folders[0], folders[0]])
    (tmp_path / "empty").mkdir()
    with pytest.raises(L2DError, match=r"no config\.json"):
        experts([tmp_path / "empty"]).panel(asked_for)


def test_without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(L2DError, match=r"pip install 'l2d\[llm\]'"):
        load(parse("gpt2"), "float32", torch.device("cpu"), progress=False)


def test_without_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """First what is here, then the hub, if it answers; then one line."""
    import transformers

    tried: list[bool] = []

    def fail(*_: Any, local_files_only: bool = False, **__: Any) -> None:
        tried.append(local_files_only)
        raise OSError("We couldn't connect to the hub. Check your\ninternet connection.")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", fail)
    cases = {
        None: "cannot be loaded (We couldn't connect to the hub)",
        "it is away": "not on this machine, and it is away",
    }
    for why, said in cases.items():
        monkeypatch.setattr("l2d.data.text.pretrained.unreachable", lambda *_, why=why, **__: why)
        with pytest.raises(L2DError) as caught:
            load(parse("Qwen/Qwen2.5-7B-Instruct"), "float32", torch.device("cpu"), progress=False)
        assert str(caught.value).startswith(f"experts.models=Qwen/Qwen2.5-7B-Instruct: {said}; give a local folder")
        for words in ("HF_HOME", "l2d import"):
            assert words in str(caught.value)
    assert tried == [True, False, True]


def test_a_model_too_large(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", fail)
    with pytest.raises(L2DError, match=r"^experts\.models=.*large: does not fit into the memory of cpu as float32"):
        load(parse(str(folders[0])), "float32", torch.device("cpu"), progress=False)


def test_a_folder_that_holds_no_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "nothing"}')
    with pytest.raises(L2DError, match=r"^experts\.models=.*cannot be loaded"):
        load(parse(str(tmp_path)), "float32", torch.device("cpu"), progress=False)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_table_comes_back(folders: list[Path], tmp_path: Path, suffix: str) -> None:
    """Through dataset=table, with text and split named, the experts make the same errors."""
    data, file = arrays(questions(14)), tmp_path / f"outcomes{suffix}"
    panel = experts(folders, table=str(file)).panel(request(tmp_path, data))
    sheet = read_sheet(file, ["prompt"])
    assert sheet.names[:4] == ["id", "prompt", "answer", "split"]
    assert sheet.names[4:12] == [
        "correct_large",
        "answer_large",
        *(f"probability_{letter}_large" for letter in LETTERS),
        "tokens_large",
        "seconds_large",
    ]
    assert sheet.texts("prompt") == questions(14)
    total = sum(sheet.numbers(f"probability_{letter}_small") for letter in LETTERS)
    np.testing.assert_allclose(total, 1, atol=1e-5)
    cfg = compose(["dataset=table", f"dataset.path={file}", "dataset.text=prompt", "dataset.split=split"])
    table: Table = make(cfg.dataset)
    back = table.load(tmp_path)
    assert back.panel is not None
    assert back.panel.names == panel.names
    assert torch.equal(back.panel.train.errors, panel.train.errors)
    assert torch.equal(back.panel.test.errors, panel.test.errors)


def test_the_table_by_hand(tmp_path: Path) -> None:
    outcomes = Outcomes(
        np.array([1, 0]),
        np.array([[0.25, 0.75], [0.5, 0.5]], dtype=np.float32),
        np.array([7, 9]),
        np.array([0.5, 0.25]),
    )
    outcomes_table(tmp_path / "t.csv", Asked(['say "a",\nor b', "c"], np.array([1, 1]), ["A", "B"], {"m": outcomes}))
    lines = (tmp_path / "t.csv").read_text().split("\n", 1)
    assert (
        lines[0].replace('"', "")
        == "id,prompt,answer,correct_m,answer_m,probability_A_m,probability_B_m,tokens_m,seconds_m"
    )
    assert lines[1].splitlines()[-1].replace('"', "") == "1,c,B,0,A,0.5,0.5,9,0.25"
    outcomes_table(
        tmp_path / "t.csv", Asked(["b", "c"], np.array([1, 1]), ["A", "B"], {"m": outcomes}, subjects=["law", "art"])
    )
    assert read_sheet(tmp_path / "t.csv").words("subject") == ["law", "art"]


@pytest.mark.slow
def test_the_command_says_how_long_each_took(folders: list[Path], tmp_path: Path) -> None:
    """A line for each model; the second time they are read, and a third model alone is made."""
    prompts = questions(80)
    subjects = ["long" if len(prompt) > 100 else "short" for prompt in prompts]
    columns = {"prompt": prompts, "subject": subjects, "answer": LETTERS * (len(prompts) // 4)}
    write_sheet(tmp_path / "q.parquet", columns)
    others = [f"data_dir={tmp_path}", "progress=false", "validation_fraction=0.2"]

    def lines(*models: Path) -> list[str]:
        given = ["dataset=mmlu", f"dataset.path={tmp_path / 'q.parquet'}", "dataset.only=null", "router=mlp"]
        named = ",".join(map(str, models))
        cfg = compose([*given, f"experts.models=[{named}]", f"runs_dir={tmp_path}", *others])
        found = [re.fullmatch(r"(.+), in \d+ s: (.+)", line) for line in made(assembled(cfg))]
        assert all(one and Path(one[2]).is_dir() for one in found)
        return [one[1] for one in found if one]

    third = tmp_path / "third"
    shutil.copytree(folders[1], third)
    (third / "README.txt").write_text("another")
    others.append(f"experts.table={tmp_path / 't.csv'}")
    assert lines(*folders) == ["large: made", "small: made"]
    written = read_sheet(tmp_path / "t.csv", ["prompt"])  # the training rows first
    expected = ["long" if len(prompt) > 100 else "short" for prompt in written.texts("prompt")]
    assert written.words("subject") == expected
    assert expected != subjects
    assert lines(third, folders[0]) == ["third: made", "large: made earlier (force=true makes them anew)"]


def test_other_weights_are_another_run(folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is loaded to tell. Of data that know their experts' answers only the data count."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    folder = tmp_path / "large"
    shutil.copytree(folders[0], folder)
    write_sheet(tmp_path / "q.csv", {"prompt": ["q"], "subject": ["law"], "answer": ["A"]})
    given = ["dataset=mmlu", f"dataset.path={tmp_path / 'q.csv'}", "router=mlp", "progress=false"]

    data, names, local = (
        compose([*given, more]) for more in ("experts=table", "seed=0", f"experts.models=[{folder},a]")
    )
    before = [run_fingerprint(cfg) for cfg in (data, names, local)]
    assert len(set(before)) == 3
    assert before[0] == make_dataset(data).fingerprint(tmp_path)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    after = [run_fingerprint(cfg) for cfg in (data, names, local)]
    assert after[:2] == before[:2]
    assert after[2] != before[2]


def test_the_encoder_learns_of_progress() -> None:
    for wanted in (True, False):
        cfg = compose(["dataset=mmlu", f"progress={wanted}"])
        assert make_dataset(cfg).encoder.progress == wanted  # type: ignore[attr-defined]


def test_the_config() -> None:
    """Nothing is loaded by building it."""
    made: LLMExperts = make(compose(["experts=llm", "setup=own"]).experts)
    assert made.names == ("Qwen2.5-7B-Instruct", "Qwen2.5-1.5B-Instruct", "Qwen2.5-0.5B-Instruct")
    assert (made.letters, made.chat, made.dtype, made.seed) == (LETTERS, True, "auto", None)
