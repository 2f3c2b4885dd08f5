"""Prompt and response lengths drawn from distributions, tied by a Gaussian copula."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from parsim.errors import UserError, nearest
from parsim.traces.checks import MAX_TOKENS

Tokens = NDArray[np.int64]

MAX_CV = 1000


@dataclass(frozen=True)
class Lognormal:
    """Lognormal lengths, in tokens, at least 1.

    Attributes:
        prompt_mean, output_mean: means, in tokens.
        prompt_cv, output_cv: standard deviation over mean.
        correlation: Spearman's, between prompt and response, -1 to 1.
        max_tokens: longer draws are cut to this; None for no limit.
    """

    prompt_mean: float = 500.0
    prompt_cv: float = 1.0
    output_mean: float = 200.0
    output_cv: float = 1.0
    correlation: float = 0.0
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("prompt_mean", "prompt_cv", "output_mean", "output_cv"):
            value, most = getattr(self, name), MAX_TOKENS if name.endswith("mean") else MAX_CV
            if not isinstance(value, int | float):
                raise UserError(f"lengths: {name} is {value!r}, must be a number")
            if not value > 0:
                raise UserError(f"lengths: {name} is {value:g}, must be > 0")
            if value > most:
                raise UserError(f"lengths: {name} is {value:g}, must be <= {most:,}")
        if self.max_tokens is not None:
            if not isinstance(self.max_tokens, int):
                raise UserError(f"lengths: max_tokens is {self.max_tokens!r}, must be a whole number")
            if self.max_tokens < 1:
                raise UserError(f"lengths: max_tokens is {self.max_tokens}, must be >= 1")
        check_correlation(self.correlation)

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Tokens, Tokens]:
        """(prompt tokens, output tokens) of `n` requests.

        mu and sigma of the normal beneath: sigma^2 = ln(1 + cv^2), mu = ln(mean) - sigma^2 / 2.
        """
        normal = coupled_normals(n, self.correlation, rng)
        shapes = ((self.prompt_mean, self.prompt_cv), (self.output_mean, self.output_cv))
        drawn = []
        for z, (mean, cv) in zip(normal, shapes, strict=True):
            variance = np.log1p(cv**2)
            tokens = np.exp(np.log(mean) - variance / 2 + np.sqrt(variance) * z)
            tokens = np.clip(np.rint(tokens), 1, self.max_tokens)
            if tokens.max() > MAX_TOKENS:
                raise UserError(
                    f"lengths: mean {mean:g} and cv {cv:g} draw more than {MAX_TOKENS:,} tokens; set max_tokens"
                )
            drawn.append(tokens.astype(np.int64))
        return drawn[0], drawn[1]


@dataclass(frozen=True)
class Resampled:
    """Lengths drawn with replacement from recorded rows.

    Attributes:
        frame: `prompt_tokens` and `output_tokens`.
        correlation: None draws the recorded pairs; a number (Spearman's) draws the two lengths from their own
            distributions, tied that strongly.
    """

    frame: pl.DataFrame
    correlation: float | None = None

    def __post_init__(self) -> None:
        if self.correlation is not None:
            check_correlation(self.correlation)

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Tokens, Tokens]:
        """(prompt tokens, output tokens) of `n` requests."""
        prompt, output = (self.frame[column].to_numpy() for column in ("prompt_tokens", "output_tokens"))
        if self.correlation is None:
            rows = rng.integers(len(prompt), size=n)
            return prompt[rows], output[rows]
        from scipy.special import ndtr

        first, second = (ndtr(z) * len(prompt) for z in coupled_normals(n, self.correlation, rng))
        last = len(prompt) - 1
        at_first, at_second = (np.minimum(rank.astype(np.int64), last) for rank in (first, second))
        return np.sort(prompt)[at_first], np.sort(output)[at_second]


def parse_lengths(settings: Mapping[str, Any]) -> Lognormal | Resampled:
    """Lengths as a sweep file or a command line gives them.

    Args:
        settings: the attributes of `Lognormal`; or `from` (a trace or corpus to resample), with `model` where the
            corpus has several models' lengths, and `correlation`.

    Raises:
        UserError: an unknown name (with the nearest), a value out of range, or a file that cannot be read.
    """
    known = ("from", "model", "correlation") if "from" in settings else tuple(Lognormal.__dataclass_fields__)
    for name in settings:
        if name not in known:
            raise UserError(f"lengths: no setting {name!r}{nearest(name, known)}; known: {', '.join(known)}")
    if "from" not in settings:
        return Lognormal(**settings)
    from parsim.traces.readers import read_corpus

    return Resampled(read_corpus(settings["from"], settings.get("model")).frame, settings.get("correlation"))


def coupled_normals(n: int, spearman: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Two rows of `n` standard normals whose Spearman correlation is `spearman` in expectation.

    Pearson's of a Gaussian copula is 2 sin(pi rho_s / 6) (Kruskal 1958).
    """
    pearson = 2 * np.sin(np.pi * spearman / 6)
    first, other = rng.standard_normal((2, n))
    return np.stack([first, pearson * first + np.sqrt(max(0.0, 1 - pearson**2)) * other])


def check_correlation(value: float) -> None:
    if not isinstance(value, int | float):
        raise UserError(f"lengths: correlation is {value!r}, must be a number")
    if not -1 <= value <= 1:
        raise UserError(f"lengths: correlation is {value:g}, must be between -1 and 1")
