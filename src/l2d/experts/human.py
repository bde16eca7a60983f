"""People as experts, beside machines: CIFAR-N's annotators and CIFAR-10H's votes (docs/human_experts.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from l2d.data.arrays import Answers, Panel
from l2d.experts.cache import Cache
from l2d.experts.request import ExpertRequest, Experts
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.parameters import Count
from l2d.utils.seeding import stream

if TYPE_CHECKING:
    from torch import Tensor

# CIFAR-N's file, its keys, one per person, and CIFAR-10H's file, if the test images have votes.
PUBLISHED: dict[str, tuple[str, tuple[str, ...], str | None]] = {
    "cifar10": ("CIFAR-10_human.pt", ("random_label1", "random_label2", "random_label3"), "cifar10h-counts.npy"),
    "cifar100n": ("CIFAR-100_human.pt", ("noisy_label",), None),
}


def machines_and_people(p: int, people: int) -> tuple[str, ...]:
    machines = ["machine"] if p == 1 else [f"machine {k + 1}" for k in range(p)]
    return (*machines, *(f"person {j + 1}" for j in range(people)))


class HumanExperts(Experts):
    """Machine experts, then people: columns of labels. The seed is the machine's: what it learned from is never validated on."""

    seed: int | None

    def __init__(self, *, dataset: Literal["cifar10", "cifar100n"], people: Count, machine: Experts) -> None:
        most = len(PUBLISHED[dataset][1])
        if people > most:
            raise ParameterError("people", f"must be at most {most} with dataset={dataset}", people)
        if isinstance(machine, HumanExperts):
            raise ParameterError("machine", "must be machine experts; use experts@experts.machine=trained or synthetic")
        self.published, self.people, self.machine, self.seed = PUBLISHED[dataset], people, machine, machine.seed

    @staticmethod
    def expert_names(coverage: Sequence[float] | None, *, people: int, **_: object) -> tuple[str, ...]:
        return () if coverage is None else machines_and_people(len(coverage), people)

    def panel(self, request: ExpertRequest) -> Panel:
        from torch.nn import functional as F

        train, test = self._answers(request)  # first: a bad file fails at once, not after training the machine
        machine = self.machine.panel(replace(request, cache=machine_cache(request.cache)))
        names = machines_and_people(len(machine.names), self.people)
        learned = append_people(machine.train, train, request.arrays.train_labels)
        judged = append_people(machine.test, test, request.arrays.test_labels)
        # A person knows all classes.
        coverage = None if machine.coverage is None else (*machine.coverage, *[1.0] * self.people)
        knows = None if machine.knows is None else F.pad(machine.knows, (0, 0, 0, self.people), value=True)
        return Panel(names, learned, judged, coverage, knows, machine.learned)

    def _answers(self, request: ExpertRequest) -> tuple[Tensor, Tensor]:
        from l2d.experts.annotations import draw_votes, read_annotations, read_votes

        arrays, folder = request.arrays, request.data_dir / "human"
        labels, columns, votes = self.published
        splits = read_annotations(folder / labels, columns[: self.people], arrays)
        if votes is None:
            if len(splits) < 2:
                raise L2DError("experts=human: the labels of CIFAR-100N need the images of dataset=cifar100n")
            return splits[0], splits[1]
        counts = read_votes(folder / votes, self.people, arrays)
        return splits[0], draw_votes(counts, self.people, stream(request.seed, "people", "test"))


def append_people(machine: Answers, people: Tensor, labels: Tensor) -> Answers:
    """The machine's answers and, to their right, people's (int [N, people])."""
    import torch

    from l2d.core.costs import expert_errors

    errors = torch.cat([machine.errors, expert_errors(people, labels)], dim=1)
    return Answers(errors, None if machine.predictions is None else torch.cat([machine.predictions, people], dim=1))


def machine_cache(cache: Cache) -> Cache:
    """The cache that the machine experts would have without people, so that they are made once for both."""
    experts = cache.identity.get("experts")
    if not isinstance(experts, Mapping):
        return cache
    title = cache.title.removesuffix(str(experts["name"])) + str(experts["machine"]["name"])
    return replace(cache, title=title, identity={**cache.identity, "experts": experts["machine"]})
