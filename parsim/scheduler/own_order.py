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


class Seen:
    """What a function is shown of a request: what every engine knows of it. What it writes there changes nothing."""

    __slots__ = ("arrival_s", "prompt_tokens", "rank", "request_id", "score")

    def __init__(self, request: WaitingRequest) -> None:
        self.request_id = request.request_id
        self.arrival_s = request.arrival_s
        self.prompt_tokens = request.prompt_tokens
        self.score = request.score
        self.rank = request.rank


class Foreseen(Seen):
    """Also its response length, which only a simulated engine knows while it waits."""

    __slots__ = ("output_tokens",)

    def __init__(self, request: WaitingRequest) -> None:
        super().__init__(request)
        self.output_tokens = request.output_tokens  # type: ignore[attr-defined]


def key_value(
    name: str, function: KeyFunction
) -> tuple[Callable[[WaitingRequest, float], tuple[float, ...]], bool, bool]:
    """The function as `value(request, now_s)`, whether it looks at the time, and whether it is clairvoyant.

    It is clairvoyant where it asks the first request it is shown for its response length; one that does so of some
    requests only is refused there, as it could be run in no engine and would be taken for one that can.
    Its failure on a request is a `UserError` that names both; a value that is not a number (NaN) sorts last.

    Raises:
        UserError: it takes neither a request nor a request and a time.
    """
    parameters = _parameters(name, function)

    def call(seen: Seen, now_s: float) -> Any:
        return function(seen, now_s) if parameters == 2 else function(seen)

    clairvoyant = _asks_for_length(call)
    show = Foreseen if clairvoyant else Seen

    def value(request: WaitingRequest, now_s: float) -> tuple[float, ...]:
        try:
            found = call(show(request), now_s)
            return tuple(map(_number, found if isinstance(found, tuple) else (found,)))
        except Exception as error:  # a stranger's code
            what = repr(error)
            if isinstance(error, AttributeError) and isinstance(error.obj, Seen):
                what = f"a request has no {error.name}{nearest(str(error.name), Seen.__slots__)}"
                if error.name == "output_tokens":
                    what = "it asks for output_tokens of some requests only; ask for it of each (a bound), or of none"
            raise UserError(f"order {name}: failed on request {request.request_id!r}: {what}") from error

    return value, parameters == 2, clairvoyant


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


def _asks_for_length(call: Callable[[Seen, float], Any]) -> bool:
    """Whether it asks a request that waits in a real engine for its response length, which nobody knows there."""
    try:
        call(Seen(WaitingRequest("probe", 0.0, 1.0, 1)), 1.0)
    except AttributeError as error:
        return error.name == "output_tokens"
    except Exception:  # told of when it fails on a real request
        return False
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
