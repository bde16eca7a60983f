"""Simulated questions and simulated language models: nothing here is real, and everything is embedded.

The three models' outcomes are dealt out so that the oracle's shares are those the paper prints for MMLU: 82.2 / 12.8 / 5.0 % when
only errors count, 31.2 / 12.0 / 56.8 % with prices 1.0, 0.6, 0.1. (The losses it prints cannot all be matched: its two settings
imply different outcomes.)
"""

import hashlib
from pathlib import Path

import numpy as np
import torch

from l2d.data.arrays import Answers, Arrays, Panel, Seen, alike, stratified_split, together
from l2d.data.text.encoders import Encoder
from l2d.utils.errors import L2DError, check_choice
from l2d.utils.seeding import stream

NAMES = ("strong (simulated)", "medium (simulated)", "tiny (simulated)")
# Which of strong, medium, tiny are right, and how often. Of the many that give the paper's shares, one with 15 % beyond all three.
PATTERNS = ((1, 0, 0), (0, 0, 0), (0, 1, 0), (0, 1, 1), (1, 1, 0), (1, 1, 1), (1, 0, 1), (0, 0, 1))
CHANCES = (0.312, 0.15, 0.06, 0.068, 0.06, 0.26, 0.04, 0.05)
# Kinds of questions, hard ones first: the transport below deals them the patterns in this order.
KINDS = (
    ("algebra", True),
    ("arithmetic", True),
    ("world history", True),
    ("logic", True),
    ("geography", True),
    ("logic", False),
    ("world history", False),
    ("algebra", False),
    ("arithmetic", False),
    ("geography", False),
)
SKILL = 0.8  # of the outcomes, the share that follows the kind of question; the rest are the same for all kinds
TEST_FRACTION = 1 / 3
LABELS = ("answer", "subject")

PEOPLE = ("Anna", "Ben", "Carla", "David", "Emeka", "Farah", "Goran", "Hanna", "Ivan", "Julia")
GOODS = ("apples", "tickets", "books", "bricks", "litres of milk", "metres of rope", "stamps", "chairs")
EVENTS = ("treaty", "revolt", "council", "siege", "famine", "reform", "alliance", "trade route")
REALMS = ("Rome", "Persia", "the Song dynasty", "the Inca empire", "Venice", "the Mali empire", "Prussia", "Byzantium")
LANDS = ("Chile", "Norway", "Kenya", "Vietnam", "Canada", "Morocco", "Peru", "Poland")
THINGS = ("river", "mountain range", "neighbouring country", "climate", "capital", "main export")
MATTERS = ("cats", "metals", "poets", "planets", "sailors", "machines", "birds", "judges")


class MMLUSim:
    """questions: how many. encoder: how a router sees them. label: the right letter, or what the question is about. The same
    questions, outcomes and test rows whatever the run's seed and the label."""

    # The default is for the configs of runs of before there was a choice.
    def __init__(self, *, questions: int, encoder: Encoder | None, label: str = "answer") -> None:
        if questions < 100:
            raise L2DError(f"dataset.questions={questions}: must be at least 100")
        if encoder is None:
            raise L2DError("dataset=mmlu_sim: this router does not read text; use router=mlp, or router=minilm")
        check_choice("dataset.label", label, LABELS)
        self.questions, self.encoder, self.label = questions, encoder, label

    def fingerprint(self, data_dir: Path) -> str:  # noqa: ARG002
        known = f"mmlu_sim {self.questions} {CHANCES} {SKILL} {self.encoder.identity()}"
        return hashlib.sha256(known.encode()).hexdigest()[:16]

    def load(self, data_dir: Path) -> Arrays:
        rng = stream(0, "mmlu_sim")
        kinds, patterns = outcomes(self.questions, rng)
        texts = written(kinds, rng)
        letters = torch.from_numpy(rng.integers(0, 4, self.questions))
        right = torch.tensor(PATTERNS, dtype=torch.bool)[torch.from_numpy(patterns)]
        wrong = (letters[:, None] + torch.from_numpy(rng.integers(1, 4, right.shape))) % 4
        predictions = torch.where(right, letters[:, None].expand_as(wrong), wrong)
        topics = [KINDS[kind][0] for kind in kinds]
        subjects = sorted(set(topics))
        by_letter = self.label == "answer"
        # What models say is a letter, and no subject.
        answers = Answers((~right).double(), predictions if by_letter else None)
        labels = letters if by_letter else torch.tensor([subjects.index(topic) for topic in topics])
        groups = alike(texts)

        def draw(labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return stratified_split(labels, TEST_FRACTION, 0, key="dataset.questions")

        train, test = together(draw, torch.from_numpy(patterns), groups)
        inputs = torch.from_numpy(self.encoder.encode(texts, data_dir))
        return Arrays(
            inputs[train],
            labels[train],
            inputs[test],
            labels[test],
            4 if by_letter else len(subjects),
            panel=Panel(NAMES, answers[train], answers[test]),
            groups=groups[train],
            categories=tuple(topics[row] for row in test.tolist()),
            texts=([texts[row] for row in train.tolist()], [texts[row] for row in test.tolist()]),
            seen=Seen(text="prompt"),
        )


def outcomes(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Kind and pattern of each question: patterns as often as CHANCES says, kinds equally often, joined by a plan that gives each
    kind its own patterns as far as both allow, and mixed with chance by 1 − SKILL."""
    patterns = np.repeat(np.arange(len(PATTERNS)), apportioned(np.array(CHANCES), n))
    kinds = np.arange(n) * len(KINDS) // n
    lucky = rng.random(n) >= SKILL
    patterns[lucky] = rng.permutation(patterns[lucky])
    order = rng.permutation(n)
    return kinds[order], patterns[order]


def apportioned(shares: np.ndarray, n: int) -> np.ndarray:
    """Whole numbers that add up to n, as near to the shares as can be (largest remainders)."""
    counts = np.floor(shares * n).astype(int)
    most = np.argsort(-(shares * n - counts), kind="stable")[: n - counts.sum()]
    counts[most] += 1
    return counts


def written(kinds: np.ndarray, rng: np.random.Generator) -> list[str]:
    return [question(*KINDS[kind], rng) for kind in kinds]


def question(topic: str, hard: bool, rng: np.random.Generator) -> str:
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
