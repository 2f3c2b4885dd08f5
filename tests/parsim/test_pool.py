from __future__ import annotations

import os
import signal

import pytest

from parsim.errors import UserError
from parsim.pool import in_processes


def square(number: int) -> int:
    return number * number


def killed(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_all_results_come() -> None:
    assert sorted(in_processes(square, range(7), 2)) == [0, 1, 4, 9, 16, 25, 36]


def test_a_killed_process_is_told_in_a_line() -> None:
    with pytest.raises(UserError, match=r"one of 2 processes was killed.*fewer processes"):
        list(in_processes(killed, [1, 2], 2))
