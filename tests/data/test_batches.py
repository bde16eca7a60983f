"""Every row once an epoch, in an order that depends on the seed and the epoch alone; resident, streamed, divided among ranks."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from l2d.data import batches as module
from l2d.data.batches import (
    EVAL_BATCH,
    MULTIPLE,
    Batches,
    Inputs,
    crop_flip,
    draw_augmentation,
    eval_parts,
    place,
    width_of,
)
from l2d.data.text.tokens import PADDING, lengths_of
from l2d.utils.seeding import derive_seed

CPU = torch.device("cpu")


def batches(n: int, size: int, seed: int | None = 0, rank: int = 0, world: int = 1, resident: bool = True) -> Batches:
    """A split of the even rows of 2n inputs; input i is the number i."""
    rows = torch.arange(n) * 2
    costs = torch.stack([rows, -rows], 1).float()
    inputs = Inputs(torch.arange(2 * n), CPU, resident)
    return Batches(inputs, rows, costs, rows * 10, size, seed=seed, rank=rank, world=world)


@given(st.integers(1, 200), st.integers(1, 64), st.sampled_from([None, 0, 7]), st.booleans())
def test_each_row_once_in_even_batches(n: int, size: int, seed: int | None, resident: bool) -> None:
    loader = batches(n, size, seed, resident=resident)
    parts = list(loader)
    assert len(parts) == len(loader)
    sizes = [len(inputs) for inputs, _, _ in parts]
    assert max(sizes) <= size
    assert len({*sizes[:-1]}) <= 1
    assert max(sizes) - sizes[-1] < len(sizes)
    seen, costs, labels = map(torch.cat, zip(*parts, strict=True))
    assert sorted(seen.tolist()) == list(range(0, 2 * n, 2))
    assert torch.equal(labels, seen * 10)
    assert torch.equal(costs[:, 0], seen.float())
    if seed is None:
        assert seen.tolist() == list(range(0, 2 * n, 2))


@given(st.integers(4, 200), st.integers(4, 64), st.integers(2, 4), st.booleans())
def test_ranks_are_disjoint_complete_and_in_step(n: int, size: int, world: int, resident: bool) -> None:
    loaders = [batches(n, size, rank=rank, world=world, resident=resident) for rank in range(world)]
    parts = [list(loader) for loader in loaders]
    assert len({len(part) for part in parts}) == len({len(loader) for loader in loaders}) == 1
    assert len(parts[0]) == len(loaders[0])
    assert all(len(inputs) > 0 for part in parts for inputs, _, _ in part)
    assert world * loaders[0].batch_size <= max(size, 2 * world)  # of all ranks together
    seen = [int(row) for part in parts for inputs, _, _ in part for row in inputs]
    assert sorted(seen) == list(range(0, 2 * n, 2))


def order(loader: Batches, epoch: int) -> list[int]:
    loader.sampler.set_epoch(epoch)
    return torch.cat([labels for _, _, labels in loader]).tolist()


@pytest.mark.parametrize("text", [False, True])
def test_order_is_a_function_of_seed_and_epoch(text: bool) -> None:
    def made(seed: int = 0, resident: bool = True) -> Batches:
        if text:
            return text_batches(texts(100, 30), 8, seed=seed, resident=resident)
        return batches(100, 10, seed=seed, resident=resident)

    loader = made()
    first, second = order(loader, 0), order(loader, 1)
    assert first != second
    assert order(made(), 1) == second  # whatever was drawn before, and whatever the global state
    torch.manual_seed(5)
    assert order(loader, 0) == first
    assert order(made(seed=1), 0) != first
    assert order(made(resident=False), 0) == first


@pytest.mark.parametrize("augment", ["crop", "crop_flip"])
def test_augmentation_is_drawn_anew_each_epoch_and_only_in_training(augment: str) -> None:
    """Batches = gather, then crop_flip with the epoch's own draws; without a seed the images come as they are."""
    images = torch.randint(1, 255, (20, 8, 8, 3), dtype=torch.uint8)
    rows, costs = torch.arange(20), torch.zeros(20, 2)

    def run(seed: int | None, epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
        loader = Batches(Inputs(images, CPU, True), rows, costs, rows, 6, seed=seed, augment=augment, pad=1)
        loader.set_epoch(epoch)
        parts = list(loader)
        return torch.cat([part[0] for part in parts]), torch.cat([part[2] for part in parts])

    got, labels = run(3, 5)
    draws = draw_augmentation(20, 1, torch.Generator().manual_seed(derive_seed(3, "augment", 5)))
    assert torch.equal(got, crop_flip(images[labels], draws, flip=augment == "crop_flip"))
    again, same = run(3, 5)
    assert torch.equal(got, again)
    assert torch.equal(labels, same)
    assert not torch.equal(run(3, 6)[0][run(3, 6)[1].argsort()], got[labels.argsort()])
    assert torch.equal(run(None, 5)[0], images)


def test_a_row_is_augmented_the_same_on_any_number_of_devices() -> None:
    images = torch.randint(1, 255, (21, 8, 8, 3), dtype=torch.uint8)
    rows = torch.arange(21)

    def seen(world: int) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for rank in range(world):
            options = {"seed": 1, "augment": "crop_flip", "pad": 2, "rank": rank, "world": world}
            for batch, _, labels in Batches(Inputs(images, CPU, True), rows, rows[:, None], rows, 6, **options):  # type: ignore[arg-type]
                found |= {int(row): image.flatten().tolist() for row, image in zip(labels, batch, strict=True)}
        return found

    assert len(seen(1)) == 21
    assert seen(1) == seen(2) == seen(3)


def test_where_a_set_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1000, 9000))
    monkeypatch.setattr(module, "Inputs", lambda *_, resident: SimpleNamespace(resident=resident))
    gpu = torch.device("cuda")
    placed = [place(torch.zeros(n, dtype=torch.uint8), gpu, "auto").resident for n in (499, 500)]
    assert placed == [True, False]
    assert [place(torch.zeros(900), gpu, asked).resident for asked in ("true", "false")] == [True, False]
    # It is there already. Other devices than CUDA's do not tell their free memory.
    resident = {asked: place(torch.zeros(10), CPU, asked).resident for asked in ("auto", "true", "false")}
    assert resident == {"auto": False, "true": True, "false": False}
    assert place(torch.zeros(10), torch.device("meta"), "auto").resident


def test_a_ranks_batches_have_the_one_size_that_is_compiled() -> None:
    for n in (45_000, 65_931, 90_000):
        for world in (1, 2, 3, 4, 8):
            for rank in range(world):
                sizes = batches(n, 1024, rank=rank, world=world).sizes
                assert len(set(sizes[:-1])) == 1
                assert sizes[-1] <= sizes[0]


def texts(n: int, longest: int) -> torch.Tensor:
    """Token rows of 1 to `longest` tokens; the first token is the number of the row."""
    lengths = torch.randint(1, longest + 1, (n,), generator=torch.Generator().manual_seed(n))
    tokens = torch.arange(n, dtype=torch.int32)[:, None].repeat(1, longest)
    return tokens.masked_fill(torch.arange(longest) >= lengths[:, None], PADDING)


def text_batches(tokens: torch.Tensor, size: int, **options: object) -> Batches:
    rows = torch.arange(len(tokens))
    inputs = Inputs(tokens, CPU, bool(options.pop("resident", True)))
    return Batches(inputs, rows, rows[:, None].float(), rows, size, **{"seed": 0, **options})  # type: ignore[arg-type]


@pytest.mark.slow
@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 60), st.integers(1, 3), st.sampled_from([None, 0, 5]))
def test_texts_once_each_cut_to_their_batch(n: int, size: int, longest: int, world: int, seed: int | None) -> None:
    tokens, world = texts(n, longest), min(world, n)
    options: dict[str, object] = {"seed": seed, "world": world, "resident": bool(n % 2)}
    loaders = [text_batches(tokens, size, rank=rank, **options) for rank in range(world)]
    parts = [list(loader) for loader in loaders]
    assert {len(part) for part in parts} == {len(loaders[0])}
    assert [[len(labels) for _, _, labels in part] for part in parts] == [loader.sizes for loader in loaders]
    seen: list[int] = []
    for inputs, costs, labels in (batch for part in parts for batch in part):
        assert torch.equal(inputs[:, 0].long(), labels)
        assert torch.equal(costs[:, 0], labels.float())
        width = inputs.shape[1]
        assert torch.equal(inputs, tokens[labels, :width])
        assert (tokens[labels, width:] == PADDING).all()  # nothing is lost
        assert width < int(lengths_of(tokens[labels]).max()) + MULTIPLE
        assert width % MULTIPLE == 0 or width == longest
        seen += labels.tolist()
    assert sorted(seen) == list(range(n))
    if seed is None:
        assert world > 1 or seen == list(range(n))


def test_texts_of_a_batch_are_of_like_length_and_batches_in_no_order() -> None:
    """2,000 texts of 1 to 200 tokens in batches of 20. Sorted within 50 batches, a batch's texts lie about 200/50 tokens apart; a
    random batch's longest has about 190, the mean is 100."""
    tokens = texts(2000, 200)
    widths = [inputs.shape[1] for inputs, _, _ in text_batches(tokens, 20)]
    assert sum(widths) / len(widths) < 115
    plain = [width_of(lengths_of(part)) for part in tokens.split(20)]
    assert sum(plain) / len(plain) > 180
    assert abs(torch.tensor([widths, range(100)], dtype=torch.float64).corrcoef()[0, 1]) < 0.3


def test_what_is_routed_is_cut_like_what_is_evaluated() -> None:
    """130 texts, 64 at a time at most: three batches of about as many, each as wide as its longest; rows stay whole."""
    tokens = torch.full((130, 40), PADDING, dtype=torch.int32)
    tokens[:, :3] = 7
    tokens[100, :17] = 7
    parts = list(eval_parts(tokens))
    assert [part.shape for part in parts] == [(44, 8), (44, 8), (42, 24)]
    assert [part.shape for part in eval_parts(torch.zeros(EVAL_BATCH + 1, 5))] == [(1025, 5), (1024, 5)]
