"""Running out of memory: how to detect it, how to free memory, and how many micro-batches to use next."""

import gc

import torch

from l2d.utils.errors import ParameterError

# In the messages of CPU, MPS, cuBLAS and cuDNN, which raise a plain RuntimeError.
NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "STATUS_ALLOC_FAILED")
SMALLEST = 4  # rows in a micro-batch; with fewer, the statistics of batch normalisation are too noisy


def is_out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in NO_MEMORY)


def more_parts(error: RuntimeError, setting: str, rows: int, parts: int) -> int:
    """The next number of micro-batches per batch of `rows` after `parts` ran out of memory; it prints the change. Any other
    error is re-raised. setting: the batch size as the caller calls it, with its value."""
    if not is_out_of_memory(error):
        raise error
    tried = -(-rows // parts)
    if rows // (2 * parts) < SMALLEST:
        remedy = "use a smaller network, trainer.data_on_device=false or, for texts, a lower router.reads.max_length"
        raise ParameterError(setting, f"out of memory with {tried} rows at a time; {remedy}") from error
    parts *= 2
    now = f"each batch of {rows:,} is now {parts} micro-batches of {-(-rows // parts):,}, still one step"
    print(f"out of memory with {tried:,} rows at a time: {now} (batch norm, if any, sees a micro-batch)")
    return parts


def free_memory() -> None:
    """Trainer, network and data refer to each other, so their memory is freed only when Python collects such cycles."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
