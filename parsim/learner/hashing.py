"""A request's tokens and marks as sparse rows of hashed features."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parsim.scheduler.features import Features, word_ids

BITS = 18
WIDTH = 1 << BITS
"""Hash buckets a model has weights for; two features meet in one with a chance of a few per cent."""

HEAD, TAIL = 512, 256
"""Of a longer prompt the first and last tokens are looked at: instructions stand at the ends, and a row is bounded."""

_SHIFT = np.uint64(64 - BITS)
_ODD = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], dtype=np.uint64)
_KINDS = np.arange(1, 65, dtype=np.uint64) * np.uint64(0xD6E8FEB86659FD93 >> 8)


class Row(NamedTuple):
    """Features of a request: bucket numbers, ascending and distinct, and a value for each."""

    places: NDArray[np.int32]
    values: NDArray[np.float32]


def token_ids(features: Features) -> NDArray[np.uint64]:
    """The ids that are looked at, (n,) with n <= HEAD + TAIL; words stand in where only text is known."""
    ids = features.prompt_token_ids
    if len(ids) == 0 and features.text:
        ids = word_ids(features.text)
    if len(ids) > HEAD + TAIL:
        ids = [*ids[:HEAD], *ids[-TAIL:]]
    return np.asarray(ids, dtype=np.int64).view(np.uint64)


def app_key(features: Features) -> int:
    """A number for the app; 0 for none."""
    return zlib.crc32(features.app.encode("utf-8", "surrogatepass")) if features.app else 0


def words(ids: NDArray[np.uint64], app: int) -> Row:
    """Tokens and pairs of neighbours, valued 1 + log(count); and the app."""
    keys = [ids * _ODD[0]]
    if len(ids) > 1:
        keys.append((ids[:-1] * _ODD[0] + ids[1:]) * _ODD[1])
    keys.append(np.array([app], dtype=np.uint64) * _ODD[2])
    places, counts = np.unique(np.concatenate(keys) >> _SHIFT, return_counts=True)
    return Row(places.astype(np.int32), (1.0 + np.log(counts)).astype(np.float32))


def shape(ids: NDArray[np.uint64], features: Features, app: int) -> Row:
    """How the prompt begins and ends, how long it is in three coarse scales, its limits and its app."""
    length = float(np.log2(features.prompt_tokens + 1))
    limit = 0.0 if features.max_tokens is None else 1.0 + float(np.log2(features.max_tokens + 1))
    opening = ids[:4]
    marks = [
        opening,
        np.cumsum(
            opening[:3] * _ODD[: len(opening[:3])], dtype=np.uint64
        ),  # the first one, two and three together
        ids[-2:],
        np.array(
            [length, 2 * length, 4 * length, 2 * limit, features.structured, app, app + (int(length) << 32)],
        ).astype(np.uint64),
    ]
    keys = np.concatenate(marks)
    kinds = np.concatenate([_KINDS[8 * number : 8 * number + len(mark)] for number, mark in enumerate(marks)])
    places = np.unique((keys * _ODD[0] + kinds) * _ODD[1] >> _SHIFT).astype(np.int32)
    return Row(places, np.ones(len(places), np.float32))
