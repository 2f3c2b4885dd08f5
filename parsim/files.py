"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parsim.errors import UserError


def check_target(path: str | os.PathLike[str]) -> None:
    """Make sure that a file can be written at `path`, before the hours of work whose result it takes.

    Nothing is created: whoever is refused later for another reason finds no empty folder.

    Raises:
        UserError: `path` is a folder, or the nearest folder above it that is there cannot be written.
    """
    target = Path(path)
    if target.is_dir():
        raise UserError(f"{target}: is a folder, expected a file name; name a file inside it")
    above = next(parent for parent in target.absolute().parents if parent.exists())
    if not above.is_dir():
        raise UserError(f"{target}: cannot write there ({above} is no folder); choose another place")
    if not os.access(above, os.W_OK | os.X_OK):
        raise UserError(f"{target}: cannot write there (no permission); choose another place")


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` when the block ends without an error.

    The parent folder is created. On an error nothing appears at `path` and what was there stays.

    Raises:
        UserError: `path` is a folder, its parent cannot be written, or the disk is full.
    """
    target = Path(path)
    check_target(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.stem}-", suffix=target.suffix, dir=target.parent)
    except OSError as error:
        raise UserError(f"{target}: cannot write there ({error.strerror}); choose another place") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        os.replace(temporary, target)
    except Exception as error:
        if not _is_of_the_disk(error):
            raise
        reason = " ".join(str(error).split())
        raise UserError(
            f"{target}: cannot be written ({reason}); make room or choose another place"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def _is_of_the_disk(error: Exception) -> bool:
    """Whether the operating system refused; Polars wraps its refusals in errors of its own."""
    return isinstance(error, OSError) or "(os error " in str(error)
