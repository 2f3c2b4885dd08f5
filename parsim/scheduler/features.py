"""What a scorer is told about a request when it arrives."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Features:
    """What is known of a request before its first token.

    Attributes:
        prompt_token_ids: ids of the prompt's tokens; empty where only the length is known.
        prompt_tokens: length of the prompt in tokens.
        max_tokens: the most tokens that the client lets the response have; None where there is no such limit, or
            where it says nothing about a natural end (a benchmark that forces lengths by `ignore_eos`).
        app: key of the application, template or client that sent it; empty where none is known.
        structured: the response must follow a grammar or schema.
        text: the prompt's text where it is at hand.
    """

    prompt_token_ids: Sequence[int] = ()
    prompt_tokens: int = 0
    max_tokens: int | None = None
    app: str = ""
    structured: bool = False
    text: str | None = None


def word_ids(text: str) -> list[int]:
    """Ids that stand for the tokens of a text whose tokenizer is not at hand: a checksum of each word or mark."""
    return [zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in _WORD.findall(text.lower())]
