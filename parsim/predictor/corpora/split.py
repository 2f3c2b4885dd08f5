"""Which prompts train and which ones judge: no prompt, however it is spaced or cased, is on both sides."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from parsim.errors import UserError
from parsim.predictor.corpora.corpus import Labelled

SPLIT_SEED = 42
"""The paper's split seed (PARS, arXiv 2510.03243)."""


@dataclass(frozen=True)
class Split:
    """Row numbers of a `Labelled`: three disjoint sets of prompts.

    Attributes:
        train: rows that gradients come from.
        validation: rows that choose the checkpoint; cut from the training share, never from the test.
        test: rows that only the evaluation sees.
    """

    train: npt.NDArray[np.int64]
    validation: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]


def normalise(prompt: str) -> str:
    """The prompt with compatible characters unified (NFKC), case folded and white space collapsed."""
    return " ".join(unicodedata.normalize("NFKC", prompt).casefold().split())


def prompt_keys(prompts: Sequence[str]) -> npt.NDArray[np.int64]:
    """A 63-bit key a prompt: equal for prompts that `normalise` makes equal."""
    digests = (
        hashlib.sha256(normalise(prompt).encode("utf-8", "surrogatepass")).digest() for prompt in prompts
    )
    return np.array([int.from_bytes(digest[:8], "big") >> 1 for digest in digests], dtype=np.int64)


def split(
    data: Labelled, *, test_share: float = 0.1, validation_share: float = 0.1, seed: int = SPLIT_SEED
) -> Split:
    """Divide prompts at random: `test_share` of the distinct prompts are held out, then `validation_share` of
    the rest.

    The division depends on the prompts' normalised texts and the seed alone: not on their order, their
    lengths or which model's lengths are looked at.

    Raises:
        UserError: too few distinct prompts for the three parts.
    """
    keys = prompt_keys(data.prompts)
    distinct = np.unique(keys)
    order = np.random.default_rng(seed).permutation(distinct)
    tests = round(len(order) * test_share)
    validations = round((len(order) - tests) * validation_share)
    if len(order) - tests - validations < 2 or (test_share > 0 and tests < 2):
        raise UserError(
            f"{len(order)} distinct prompts are too few to split into training, validation and test"
        )
    test = np.isin(keys, order[:tests])
    validation = np.isin(keys, order[tests : tests + validations])
    return Split(
        train=np.flatnonzero(~test & ~validation),
        validation=np.flatnonzero(validation),
        test=np.flatnonzero(test),
    )


def seen(prompts: Sequence[str], training_keys: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which prompts are among those that training saw."""
    return np.isin(prompt_keys(prompts), training_keys)


def refuse_overlap(prompts: Sequence[str], training_keys: npt.NDArray[np.int64], where: str) -> None:
    """Raise where a prompt to be evaluated was seen in training.

    Raises:
        UserError: at least one was; says how many and how to go on.
    """
    count = int(seen(prompts, training_keys).sum())
    if count:
        raise UserError(
            f"{where}: {count} of {len(prompts)} prompts were seen in training, so the figure would flatter;"
            " evaluate the unseen ones only, or allow the seen ones"
        )
