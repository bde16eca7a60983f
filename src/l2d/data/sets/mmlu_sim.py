"""Simulated questions and simulated language models. The oracle's shares are those the paper reports for MMLU: 82.2 / 12.8 / 5.0 %
when only errors count, 31.2 / 12.0 / 56.8 % with prices 1.0, 0.6, 0.1."""

import hashlib
from pathlib import Path
from typing import Literal

import numpy as np

from l2d.data.arrays import Answers, Arrays, Panel, Seen, divided
from l2d.data.dataset import DatasetBase
from l2d.data.text.encoders import Encoder
from l2d.utils.errors import ParameterError, under
from l2d.utils.parameters import Annotated, Ge
from l2d.utils.seeding import stream

SIMULATED = ("strong (simulated)", "medium (simulated)", "tiny (simulated)")
# Which of strong, medium, tiny are right, and how often. Many choices give the paper's shares; in this one all three fail on 15 %.
PATTERNS = ((1, 0, 0), (0, 0, 0), (0, 1, 0), (0, 1, 1), (1, 1, 0), (1, 1, 1), (1, 0, 1), (0, 0, 1))
CHANCES = (0.312, 0.15, 0.06, 0.068, 0.06, 0.26, 0.04, 0.05)
# Kinds of questions, hard ones first: simulated_outcomes pairs them with the patterns in this order.
QUESTION_KINDS: tuple[tuple[str, bool], ...] = (
    *((topic, True) for topic in ("algebra", "arithmetic", "world history", "logic", "geography")),
    *((topic, False) for topic in ("logic", "world history", "algebra", "arithmetic", "geography")),
)
SKILL = 0.8  # share of the outcomes that depend on the kind of question; the others are shuffled over all kinds

PEOPLE = ("Anna", "Ben", "Carla", "David", "Emeka", "Farah", "Goran", "Hanna", "Ivan", "Julia")
GOODS = ("apples", "tickets", "books", "bricks", "litres of milk", "metres of rope", "stamps", "chairs")
EVENTS = ("treaty", "revolt", "council", "siege", "famine", "reform", "alliance", "trade route")
REALMS = ("Rome", "Persia", "the Song dynasty", "the Inca empire", "Venice", "the Mali empire", "Prussia", "Byzantium")
LANDS = ("Chile", "Norway", "Kenya", "Vietnam", "Canada", "Morocco", "Peru", "Poland")
THINGS = ("river", "mountain range", "neighbouring country", "climate", "capital", "main export")
MATTERS = ("cats", "metals", "poets", "planets", "sailors", "machines", "birds", "judges")


class MMLUSim(DatasetBase):
    """label: the right letter, or what the question is about. Questions, outcomes and test rows are the same for every seed."""

    encoder: Encoder

    def __init__(
        self, *, questions: Annotated[int, Ge(100)], encoder: Encoder | None, label: Literal["answer", "subject"]
    ) -> None:
        if encoder is None:
            raise ParameterError("encoder", "missing, since this router does not read text; choose a router that does")
        self.questions, self.encoder, self.label = questions, encoder, label

    def fingerprint(self, data_dir: Path) -> str:  # noqa: ARG002
        known = f"mmlu_sim {self.questions} {CHANCES} {SKILL} {self.encoder.identity()}"
        return hashlib.sha256(known.encode()).hexdigest()[:16]

    def expert_names(self, data_dir: Path) -> list[str]:  # noqa: ARG002
        return list(SIMULATED)

    def load(self, data_dir: Path) -> Arrays:
        import torch

        from l2d.data.splits import groups_of_equal_texts, stratified_split

        rng = stream(0, "mmlu_sim")
        kinds, patterns = simulated_outcomes(self.questions, rng)
        texts = [simulated_question(*QUESTION_KINDS[int(kind)], rng) for kind in kinds]
        letters = torch.from_numpy(rng.integers(0, 4, self.questions))
        right = torch.tensor(PATTERNS, dtype=torch.bool)[torch.from_numpy(patterns)]
        topics, by_letter = [QUESTION_KINDS[kind][0] for kind in kinds], self.label == "answer"
        subjects, groups = sorted(set(topics)), groups_of_equal_texts(texts)
        train, test = stratified_split(torch.from_numpy(patterns), 1 / 3, 0, groups)
        with under("encoder"):
            self.encoder = self.encoder.fitted([texts[row] for row in train.tolist()])
            inputs = torch.from_numpy(self.encoder.encode(texts, data_dir))
        answers = Answers((~right).double())
        labels = letters if by_letter else torch.tensor([subjects.index(topic) for topic in topics])
        whole = Arrays(
            inputs,
            labels,
            inputs[:0],
            labels[:0],
            4 if by_letter else len(subjects),
            panel=Panel(SIMULATED, answers, answers[:0]),
            groups=groups,
            train_categories=tuple(topics),
            texts=(texts, []),
            seen=Seen(text="prompt"),
            reading=self.encoder.state,
        )
        return divided(whole, train, test)


def simulated_outcomes(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Kind and pattern of each question: kinds equally often, patterns as often as CHANCES says. Both are sorted and paired in
    that order, so that each kind has patterns of its own; then a share 1 − SKILL is shuffled."""
    patterns = np.repeat(np.arange(len(PATTERNS)), apportioned(np.array(CHANCES), n))
    kinds = np.arange(n) * len(QUESTION_KINDS) // n
    lucky = rng.random(n) >= SKILL
    patterns[lucky] = rng.permutation(patterns[lucky])
    order = rng.permutation(n)
    return kinds[order], patterns[order]


def apportioned(shares: np.ndarray, n: int) -> np.ndarray:
    """Whole numbers that add up to n, as close to the shares as possible (largest remainders)."""
    counts = np.floor(shares * n).astype(int)
    most = np.argsort(-(shares * n - counts), kind="stable")[: n - counts.sum()]
    counts[most] += 1
    return counts


def simulated_question(topic: str, hard: bool, rng: np.random.Generator) -> str:
    """A question from its topic's templates; hard ones have larger numbers, or ask for more."""

    def pick(words: tuple[str, ...]) -> str:
        return words[rng.integers(len(words))]

    a, b, c = (int(value) for value in rng.integers(2, 20, 3) * (rng.integers(30, 90, 3) if hard else 1))
    if topic == "arithmetic":
        more = f", less {c} percent," if hard else ""
        return f"{pick(PEOPLE)} buys {a} {pick(GOODS)} at {b} cents each. How much does that cost{more} in cents?"
    if topic == "algebra":
        power = "^3 - " + f"{c}x^2" if hard else ""
        return f"Solve for x: {a}x{power} + {b} = {a * c + b}. How many real solutions are there above {b - a}?"
    if topic == "world history":
        why = "Which of these best explains why" if hard else "In which century was it that"
        return f"{why} the {pick(EVENTS)} of {int(rng.integers(100, 1900))} in {pick(REALMS)} came about?"
    if topic == "geography":
        how = "In view of its latitude, which" if hard else "Which"
        return f"{how} {pick(THINGS)} of {pick(LANDS)} lies closest to {pick(LANDS)}?"
    some = f"No {pick(MATTERS)} are {pick(MATTERS)} unless all {pick(MATTERS)} are {pick(MATTERS)}. " if hard else ""
    return f"{some}All {pick(MATTERS)} are {pick(MATTERS)}. Some {pick(MATTERS)} are not {pick(MATTERS)}. Which conclusion follows?"
