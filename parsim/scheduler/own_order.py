"""An order of one's own: a Python function that gives a waiting request its sort key.

It is given in Python, or by its place: `module:function` (the working directory is looked in too) or
`file.py:function`; by that text every process finds it: workers of a sweep, parity, the scheduler inside vLLM.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any

from parsim.errors import UserError, nearest
from parsim.scheduler.request import WaitingRequest

KeyFunction = Callable[..., Any]
"""`f(request)`, or `f(request, now_s)` -> a number or a tuple of numbers, smallest first. It may read the request's
`prompt_tokens`, `arrival_s` (seconds), `score` (None where there is none), `rank` (the score, or what stands in for a
missing one) and `request_id`, which the simulated engine and vLLM both know."""


def load(text: str) -> KeyFunction:
    """The function of a place.

    Raises:
        UserError: no such module, file or function (the nearest is given).
    """
    if text in _GIVEN:
        return _GIVEN[text]
    place, _, name = text.rpartition(":")
    try:
        module = _module(place)
    except Exception as error:  # a stranger's code
        what = f"no module {place!r}" if isinstance(error, ModuleNotFoundError) else f"{place}: {error}"
        raise UserError(f"order {text!r}: {what}; write module:function, or file.py:function") from error
    function: Any = module
    for part in name.split("."):
        function = getattr(function, part, None)
    if not callable(function):
        names = [one for one, value in vars(module).items() if inspect.isfunction(value)]
        raise UserError(f"order {text!r}: {place} has no function {name!r}{nearest(name, names)}")
    return function


_GIVEN: dict[str, KeyFunction] = {}


def remember(text: str, function: KeyFunction) -> None:
    """Let `load` find a function in this process by this text even where no module holds it, as in a notebook."""
    _GIVEN[text] = function


def reference(order: str | KeyFunction) -> str:
    """The text by which another process finds the order: its name, or the place of its function."""
    if isinstance(order, str):
        return order
    name = getattr(order, "__qualname__", type(order).__name__)
    module = getattr(order, "__module__", "") or ""
    if module == "__main__":
        module = getattr(sys.modules["__main__"], "__file__", None) or module
    return f"{module}:{name}"


def source_hash(order: str | KeyFunction) -> str:
    """A hash of the source that the function stands in: what was computed under an older one is not used again."""
    function = load(order) if isinstance(order, str) else order
    try:
        path = inspect.getsourcefile(inspect.unwrap(function))
        source = Path(path or "").read_bytes()
    except (OSError, TypeError):
        source = getattr(getattr(function, "__code__", None), "co_code", repr(function).encode())
    return hashlib.sha256(source).hexdigest()


def key_value(
    name: str, function: KeyFunction
) -> tuple[Callable[[WaitingRequest, float], tuple[float, ...]], bool]:
    """The function as `value(request, now_s)`, and whether it looks at the time.

    Its failure on a request is a `UserError` that names both; a value that is no number sorts last.

    Raises:
        UserError: it takes neither a request nor a request and a time.
    """
    parameters = _parameters(name, function)

    def value(request: WaitingRequest, now_s: float) -> tuple[float, ...]:
        try:
            found = function(request, now_s) if parameters == 2 else function(request)
            return tuple(map(_number, found if isinstance(found, tuple) else (found,)))
        except Exception as error:  # a stranger's code
            raise UserError(f"order {name}: failed on request {request.request_id!r}: {error!r}") from error

    return value, parameters == 2


def forgiving(
    key: Callable[..., tuple[Any, float, str]], forgive: Callable[[Exception], None]
) -> Callable[[WaitingRequest, float], tuple[Any, float, str]]:
    """The key, or the last place for a request on which it fails; `forgive` is told each time."""

    def last_if_it_fails(request: WaitingRequest, now_s: float) -> tuple[Any, float, str]:
        try:
            return key(request, now_s)
        except Exception as error:
            forgive(error)
            return ((inf,), request.arrival_s, request.request_id)

    return last_if_it_fails


def reads_the_future(value: Callable[[WaitingRequest, float], Any]) -> bool:
    """Whether it asks a request that waits in a real engine for its response length, which nobody knows there."""
    try:
        value(WaitingRequest("probe", 0.0, 1.0, 1), 1.0)
    except UserError as error:  # of another kind: told of when it fails on a real request
        return isinstance(error.__cause__, AttributeError) and error.__cause__.name == "output_tokens"
    return False


def _number(value: Any) -> float:
    """As a number; what is none sorts last, as every comparison with it would be false."""
    number = float(value)
    return number if number == number else inf


def _parameters(name: str, function: KeyFunction) -> int:
    """1 for `f(request)`, 2 for `f(request, now_s)`."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return 1
    for count in (2, 1) if "now_s" in signature.parameters else (1, 2):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return count
    raise UserError(
        f"order {name}: must take a request, or a request and the time in seconds; it takes {signature}"
    )


def _module(place: str) -> ModuleType:
    """A module by name, looked for in the working directory too, or by the path of its file."""
    if place.endswith(".py"):
        path = Path(place).resolve()
        name = f"{path.stem}_{hashlib.sha256(bytes(path)).hexdigest()[:12]}"
        if name in sys.modules:
            return sys.modules[name]
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise FileNotFoundError("no such file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    return importlib.import_module(place)
