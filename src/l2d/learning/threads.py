"""How many threads compute: one, for little data."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALL = 4_000_000  # numbers: 8,000 rows of 512 columns


@contextmanager
def one_thread_if_small(numbers: int) -> Iterator[None]:
    """numbers: how many the inputs have. On few, threads save little time. If other programs use the cores too, or if a container
    may use fewer than there are, threads wait for each other in busy loops: a second can become five."""
    if numbers > SMALL:
        yield
        return
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    with threadpool_limits(1):
        torch.set_num_threads(1)  # it has a number of its own
        try:
            yield
        finally:
            torch.set_num_threads(before)
