"""How many threads compute."""

from collections.abc import Iterator

import pytest
import torch
from threadpoolctl import threadpool_info

from l2d.lightning import threads
from l2d.lightning.threads import one_thread_if_small


def numbers() -> set[int]:
    return {torch.get_num_threads(), *(library["num_threads"] for library in threadpool_info())}


@pytest.fixture
def two() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two")
def test_little_data_have_one_thread() -> None:
    with one_thread_if_small(threads.SMALL + 1):
        assert torch.get_num_threads() == 2
    with one_thread_if_small(threads.SMALL):
        assert numbers() == {1}
    assert torch.get_num_threads() == 2
    with pytest.raises(ZeroDivisionError), one_thread_if_small(1):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two")
def test_callers_that_overlap() -> None:
    """The limits belong to the process: they end with the last caller, and all is as before."""
    libraries = [library["num_threads"] for library in threadpool_info()]
    first, second = one_thread_if_small(1), one_thread_if_small(1)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"} <= {1}
    second.__exit__(None, None, None)
    assert [library["num_threads"] for library in threadpool_info()] == libraries
    assert torch.get_num_threads() == 2
