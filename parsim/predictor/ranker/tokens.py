"""Prompts as token ids of the encoder, cut to its context, and batches padded no further than needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

_CHARS_PER_TOKEN = 64
"""A prompt is cut to this many characters a token before it is tokenised, so that a 100,000-character prompt
costs no more than its head (and tail). English has about 4 characters a token, so nothing that counts is
lost."""


def tokenize(
    tokenizer: Any, prompts: Sequence[str], max_length: int, truncation: str = "head"
) -> list[list[int]]:
    """Token ids a prompt, special tokens included, at most `max_length` of them.

    `head` keeps the first tokens; `head-tail` the first half and the last half of what fits. Texts that
    cannot be encoded (lone surrogates) are scored with their broken characters replaced.
    """
    limit = max_length * _CHARS_PER_TOKEN
    clean = [prompt.encode("utf-8", "replace").decode("utf-8") for prompt in prompts]
    if truncation == "head":
        cut = [prompt[:limit] for prompt in clean]
        return list(tokenizer(cut, truncation=True, max_length=max_length)["input_ids"]) if cut else []
    cut = [prompt if len(prompt) <= 2 * limit else prompt[:limit] + prompt[-limit:] for prompt in clean]
    bare = tokenizer(cut, add_special_tokens=False, verbose=False)["input_ids"] if cut else []
    frame = tokenizer("")["input_ids"]
    first, last = frame[: (len(frame) + 1) // 2], frame[(len(frame) + 1) // 2 :]
    room = max_length - len(frame)
    head = room - room // 2
    return [
        first + (ids if len(ids) <= room else ids[:head] + ids[len(ids) - room // 2 :]) + last for ids in bare
    ]


def pad(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(input_ids, attention_mask), both (rows, longest row), int64."""
    width = max(len(row) for row in rows)
    ids = torch.full((len(rows), width), pad_id, dtype=torch.int64)
    mask = torch.zeros((len(rows), width), dtype=torch.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = torch.tensor(row, dtype=torch.int64)
        mask[number, : len(row)] = 1
    return ids, mask


def by_length(rows: Sequence[Sequence[int]], size: int) -> Iterator[npt.NDArray[np.int64]]:
    """Row numbers in groups of at most `size`, rows of like length together, so that little is spent on
    padding.
    """
    order = np.argsort([len(row) for row in rows], kind="stable")
    for start in range(0, len(order), size):
        yield order[start : start + size]
