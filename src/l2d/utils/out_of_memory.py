"""Memory that does not suffice: how it shows, how it is freed, and into how many parts a batch is cut then."""

import gc
import sys

import torch

from l2d.utils import interrupts
from l2d.utils.errors import L2DError

# CPU, MPS, cuBLAS and cuDNN raise a plain RuntimeError.
NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "STATUS_ALLOC_FAILED")
SMALLEST = 4  # rows in a part of a batch; with fewer, batch normalisation would mislead


def is_out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in NO_MEMORY)


def more_parts(error: RuntimeError, setting: str, rows: int, parts: int) -> int:
    """How many parts batches of `rows` are to come in when memory did not suffice for `parts`, which is said; any other error goes
    on. setting: the key that a batch's size is under, and its value."""
    if not is_out_of_memory(error):
        raise error
    tried = -(-rows // parts)
    if rows // (2 * parts) < SMALLEST:
        raise L2DError(
            f"{setting}: out of memory with {tried} rows at a time; use a smaller network, for texts a lower"
            " router.reads.max_length, or trainer.data_on_device=false"
        ) from error
    parts *= 2
    print(
        f"out of memory with {tried:,} rows at a time: each batch of {rows:,} now comes in {parts} parts of"
        f" {-(-rows // parts):,}, still one step (batch norm, if any, goes by the part)"
    )
    return parts


def forget_earlier_runs() -> None:
    """A sweep's runs share a process, whose ninth compilation of the same code would silently run uncompiled. CUDA graphs keep
    their memory until they are forgotten."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
    free_memory()


def free_memory() -> None:
    """Trainer, network and data refer to each other, so memory is freed only when Python looks for such cycles."""
    with interrupts.deferred():
        gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
