"""Calls in processes of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from parsim.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_processes(function: Callable[[Item], Result], items: Sequence[Item], workers: int) -> Iterator[Result]:
    """The results of `function` for all items as they come, in any order, from at most `workers` processes at a time.

    Raises:
        UserError: a process was killed from outside, as for want of memory.
    """
    from joblib import Parallel, delayed

    pool = Parallel(n_jobs=workers, backend="loky", return_as="generator_unordered", pre_dispatch="3*n_jobs")
    try:
        yield from pool(delayed(function)(item) for item in items)
    except BrokenProcessPool as error:
        raise UserError(
            f"one of {workers} processes was killed, perhaps for want of memory: what was finished is kept; run the"
            " same again with fewer processes"
        ) from error
