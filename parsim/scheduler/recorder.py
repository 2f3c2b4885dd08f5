"""Writes down what a serving engine served, as a trace that every command of parsim reads."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

log = logging.getLogger("vllm.parsim")

FLUSH_S = 1.0
"""What finished longer ago than this is with the operating system, and survives the death of the process."""
FILE_BYTES = 64 << 20
FILES = 32
"""A file of `FILE_BYTES` is followed by the next; the oldest of more than `FILES` of this run are deleted."""
HASH_BLOCK = 64
"""Tokens a prefix hash stands for, at least: a multiple of the engine's own block size."""


class TraceRecorder:
    """One JSON line a finished request, in files `trace-RUN-00001.jsonl`, ... of a folder.

    Lines are gathered in memory and handed over whole, by a thread, every `FLUSH_S`; a disk that refuses is counted and
    logged once, and serving goes on.

    Attributes:
        lines: requests written down.
        lost: requests that could not be written.
    """

    def __init__(self, folder: str | os.PathLike[str], block_size: int) -> None:
        """Begin a run of its own in the folder.

        Args:
            folder: created if absent.
            block_size: of the engine's prefix cache, in tokens.

        Raises:
            ValueError: the folder cannot be made or written to.
        """
        self.folder = Path(folder)
        self.hash_block_size = block_size * max(1, -(-HASH_BLOCK // block_size))
        self.lines = 0
        self.lost = 0
        self._salt = secrets.token_bytes(16)
        self._run = secrets.token_hex(4)
        self._number = 0
        self._file: int | None = None
        self._written = 0
        self._pending: deque[bytes] = deque()  # filled and emptied by two threads, a line at a time
        self._writing = threading.Lock()
        self._closed = threading.Event()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._next_file()
        except OSError as error:
            raise ValueError(
                f"parsim scheduler: record {str(folder)!r}: {error.strerror or error}"
            ) from error
        self._thread = threading.Thread(target=self._flush_on, name="parsim-recorder", daemon=True)
        self._thread.start()

    def write(self, row: dict[str, Any]) -> None:
        """Take down a row. Returns at once."""
        self._pending.append(json.dumps(row, separators=(",", ":")).encode() + b"\n")

    def prefix_hashes(
        self, prompt_token_ids: Sequence[int], block_hashes: Sequence[bytes], block_size: int
    ) -> list[int]:
        """One number for each full block of `hash_block_size` prompt tokens, which names it with all that precedes it.

        The numbers are salted anew in every run: equal prefixes can be told in it, prompts cannot be found out.

        Args:
            prompt_token_ids: of the whole prompt.
            block_hashes: the engine's own chained hashes, where it has them: they cost nothing more.
            block_size: tokens each of them stands for.
        """
        size = self.hash_block_size
        count = len(prompt_token_ids) // size
        step = size // block_size
        if len(block_hashes) >= count * step:
            return [self._number_of(block_hashes[(place + 1) * step - 1]) for place in range(count)]
        numbers, chain = [], b""
        for place in range(count):
            tokens = prompt_token_ids[place * size : (place + 1) * size]
            chain = hashlib.blake2b(
                chain + repr(list(tokens)).encode(), digest_size=16, key=self._salt
            ).digest()
            numbers.append(self._number_of(chain))
        return numbers

    def close(self) -> None:
        """Write what is left, and stop."""
        self._closed.set()
        self._thread.join(timeout=5.0)
        self._flush()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _number_of(self, digest: bytes) -> int:
        short = hashlib.blake2b(digest, digest_size=7, key=self._salt).digest()
        return int.from_bytes(short, "little")

    def _flush_on(self) -> None:
        while not self._closed.wait(FLUSH_S):
            self._flush()

    def _flush(self) -> None:
        with self._writing:
            lines = [self._pending.popleft() for _ in range(len(self._pending))]
            if not lines:
                return
            whole = b"".join(lines)
            try:
                if self._file is None or self._written >= FILE_BYTES:
                    self._next_file()
                self._append(whole)
                self.lines += len(lines)
            except OSError as error:
                if not self.lost:
                    log.warning("parsim: what is served cannot be recorded: %s (counted from now on)", error)
                self.lost += len(lines)

    def _append(self, whole: bytes) -> None:
        """Write it all, or nothing: half a line would make the file unreadable."""
        if self._file is None:
            return
        done = 0
        try:
            while done < len(whole):
                done += os.write(self._file, whole[done:])
        except OSError:
            if done:
                os.ftruncate(self._file, self._written)
            raise
        self._written += done

    def _next_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._number += 1
        self._written = 0
        self._file = os.open(self._path(self._number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if self._number > FILES:
            self._path(self._number - FILES).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"trace-{self._run}-{number:05}.jsonl"
