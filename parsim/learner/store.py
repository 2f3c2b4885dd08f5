"""The learner's state on disk.

numpy's own archive (`.npz`, no pickles): the base install has it, and every array in it carries a checksum, so that
a damaged one is found when it is read.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsim.errors import UserError
from parsim.files import replacing

VERSION = 1
"""Raised whenever a state of before would be read wrongly."""


def write_state(path: Path, state: Mapping[str, NDArray[Any]]) -> None:
    """Write a state; whoever reads meanwhile finds the old file or the new one, whole.

    Raises:
        OSError: the disk is full, or the folder cannot be written to.
    """
    with replacing(path) as temporary, temporary.open("wb") as file:
        arrays: dict[str, Any] = {"version": np.array(VERSION), **state}
        np.savez(file, **arrays)


def read_state(path: Path) -> dict[str, NDArray[Any]]:
    """Read what `write_state` wrote.

    Raises:
        UserError: the file is damaged, is none of these, or is of another version.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            state = {name: archive[name] for name in archive.files}
        version = int(state.pop("version"))
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path}: no state of a learner, or a damaged one ({error}); move it away") from error
    if version != VERSION:
        raise UserError(
            f"{path}: a learner's state of version {version}, this parsim reads {VERSION}; move it away"
        )
    return state
