"""The number of threads that compute: one, for little data."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

SMALL = 4_000_000  # numbers: 8,000 rows of 512 columns
_lock = threading.Lock()
_inside = 0  # how many callers want one thread: the limits belong to the process, so the last one out lifts them
_of_torch = 1
_limits = ExitStack()


@contextmanager
def one_thread_if_small(numbers: int) -> Iterator[None]:
    """numbers: how many the inputs have. On few, threads save little time. If other programs use the cores too, or if a container
    may use fewer than there are, threads wait for each other in busy loops: a second can become five."""
    if numbers > SMALL:
        yield
        return
    from threadpoolctl import threadpool_limits

    global _inside, _of_torch
    with _lock:
        if _inside == 0:
            _of_torch = torch.get_num_threads()
            _limits.enter_context(threadpool_limits(1))
        torch.set_num_threads(1)  # torch has a number of its own, by thread
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            torch.set_num_threads(_of_torch)
            if _inside == 0:
                _limits.close()
