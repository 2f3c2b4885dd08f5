"""Arrival processes: when requests come.

Written as text, `poisson(rate=10)`, so that a process fits into a command line, a sweep file and a trace's
metadata.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parsim.errors import UserError, nearest
from parsim.seeds import generator
from parsim.traces.checks import MAX_ARRIVAL_S

Times = NDArray[np.floating]

LEAST, MOST = 1e-9, 1e9
"""Range of every setting but an amplitude: rates of one in 30 years to one a nanosecond."""

HALVINGS = 80
"""Of an interval in a bisection: below what a float can tell apart."""


@dataclass(frozen=True)
class Arrivals:
    """An arrival process, for example `Arrivals("gamma", {"rate": 10.0, "cv": 2.0})`.

    Attributes:
        kind: a key of `KINDS`.
        settings: the process's numbers; those left out take the defaults of `KINDS`.
    """

    kind: str
    settings: dict[str, float]

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UserError(f"unknown arrival process {self.kind!r}{nearest(self.kind, KINDS)}; {HELP}")
        defaults = KINDS[self.kind][1]
        for name, value in self.settings.items():
            if name not in defaults:
                raise UserError(
                    f"arrival process {self.kind} has no {name!r}; it takes {', '.join(defaults)}"
                )
            if not (np.isfinite(value) and value >= 0) or (name != "amplitude" and value == 0):
                raise UserError(
                    f"arrival process {self.kind}: {name} is {value:g}, must be a positive number"
                )
            if name != "amplitude" and not LEAST <= value <= MOST:
                raise UserError(
                    f"arrival process {self.kind}: {name} is {value:g}, must lie between {LEAST:g} and {MOST:g}"
                )
        object.__setattr__(self, "settings", {**defaults, **self.settings})
        if self.settings.get("amplitude", 0) > 1:
            raise UserError(
                f"arrival process diurnal: amplitude is {self.settings['amplitude']:g}, must be <= 1"
            )
        if self.settings.get("n", 1) % 1:
            raise UserError(f"arrival process burst: n is {self.settings['n']:g}, must be a whole number")

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(f'{name}={value:.15g}' for name, value in self.settings.items())})"

    def draw(self, n: int, seed: int) -> Times:
        """The first `n` arrival times in seconds, ascending; the first is 0.

        Raises:
            UserError: `n` is below 1, the seed is negative, or the last one comes after `MAX_ARRIVAL_S`.
        """
        if n < 1:
            raise UserError(f"asked for {n} requests, must be >= 1")
        times = KINDS[self.kind][0](n, generator(seed), **self.settings)
        times = times - times[0]
        if times[-1] > MAX_ARRIVAL_S:
            raise UserError(
                f"arrival process {self}: request {n:,} comes after {times[-1]:.3g} s, more than {MAX_ARRIVAL_S:g}; "
                "ask for fewer requests or a higher rate"
            )
        return times


def _poisson(n: int, rng: np.random.Generator, rate: float) -> Times:
    """Exponential gaps of mean 1/rate."""
    return np.cumsum(rng.exponential(1 / rate, n))


def _gamma(n: int, rng: np.random.Generator, rate: float, cv: float) -> Times:
    """Gamma gaps of mean 1/rate and coefficient of variation cv (shape 1/cv^2); above 1 is bursty."""
    shape = cv**-2
    return np.cumsum(rng.gamma(shape, 1 / (rate * shape), n))


def _burst(n_requests: int, rng: np.random.Generator, n: float, every_s: float) -> Times:
    """`n` requests at once, every `every_s` seconds."""
    return np.arange(n_requests) // int(n) * every_s


def _diurnal(n: int, rng: np.random.Generator, rate: float, amplitude: float, period_s: float) -> Times:
    """Poisson with rate(t) = rate (1 - amplitude cos(2 pi t / period)): quietest at 0.

    Inversion (Cinlar 1975): the times t at which the integral of the rate, t - swing sin(2 pi t / period) times
    the rate, reaches the sums of unit exponentials. It is within `swing` of a straight line and ascends, so
    bisection finds t; thinning would draw for ever where the rate is almost 0.
    """
    even = np.cumsum(rng.exponential(1 / rate, n))
    swing = amplitude * period_s / (2 * np.pi)
    low, high = np.maximum(even - swing, 0.0), even + swing
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        early = middle - swing * np.sin(2 * np.pi * middle / period_s) < even
        low, high = np.where(early, middle, low), np.where(early, high, middle)
    return high


KINDS: dict[str, tuple[Callable[..., Times], dict[str, float]]] = {
    "poisson": (_poisson, {"rate": 1.0}),
    "gamma": (_gamma, {"rate": 1.0, "cv": 2.0}),
    "burst": (_burst, {"n": 2000.0, "every_s": 60.0}),
    "diurnal": (_diurnal, {"rate": 1.0, "amplitude": 0.8, "period_s": 86_400.0}),
}
"""kind -> (generator of `n` times, settings with their defaults). Rates are requests per second."""

HELP = "write poisson(rate=10), gamma(rate=10, cv=2), burst(n=2000, every_s=60) or diurnal(rate=10)"


def parse_arrivals(text: str) -> Arrivals:
    """The process written as `kind(name=number, ...)`.

    Raises:
        UserError: not of that form, or an unknown kind or setting.
    """
    match = re.fullmatch(r"\s*(\w+)\s*(?:\((.*)\))?\s*", text)
    if not match:
        raise UserError(f"arrival process {text!r} is not understood; {HELP}")
    settings: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in (match[2] or "").split(","))):
        name, _, value = part.partition("=")
        if name.strip() in settings:
            raise UserError(f"arrival process {text!r}: {name.strip()} is given twice")
        try:
            settings[name.strip()] = float(value)
        except ValueError:
            raise UserError(f"arrival process {text!r}: {part!r} is not name=number; {HELP}") from None
    return Arrivals(match[1], settings)
