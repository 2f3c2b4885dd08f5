"""Compressed files: gz, zst, xz, bz2 and zip, told from their first bytes."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import polars as pl

from parsim.errors import UserError

UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def content(path: Path) -> bytes | Path:
    """The file's bytes unpacked and in UTF-8; the path itself where it is neither packed nor in UTF-16.

    Raises:
        UserError: it cannot be read, is cut short, or is a zip archive of several files.
    """
    if path.is_dir():
        raise UserError(f"{path}: is a folder, expected a trace file; name a file inside it")
    try:
        with open(path, "rb") as file:
            start = file.read(8)
        unpack = next((unpack for magic, unpack in PACKINGS.items() if start.startswith(magic)), None)
        if unpack is None and not start.startswith(UTF16):
            return path
        data = path.read_bytes() if unpack is None else unpack(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check the path") from None
    except (OSError, EOFError, RuntimeError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: cannot be read ({error}); check the file") from error
    except pl.exceptions.PolarsError as error:
        raise UserError(f"{path}: cannot be read ({str(error).splitlines()[0]}); check the file") from None
    if not data.startswith(UTF16):
        return data
    try:
        return data.decode("utf-16").encode()
    except UnicodeError:
        raise UserError(f"{path}: is not whole UTF-16 text; save the file as UTF-8") from None


def _zstd(path: Path) -> bytes:
    """Polars unpacks zstd by lines; Python's own library has it from 3.14 on."""
    return "\n".join(pl.read_lines(path, glob=False)["line"]).encode() + b"\n"


def _zip(path: Path) -> bytes:
    with zipfile.ZipFile(path) as archive:
        names = [
            name
            for name in archive.namelist()
            if not name.endswith("/") and not name.startswith("__MACOSX/") and "/." not in f"/{name}"
        ]
        if len(names) != 1:
            listed = ", ".join(names[:5]) or "none"
            raise UserError(
                f"{path}: holds {len(names)} files ({listed}), expected one; unpack the one to read"
            )
        return archive.read(names[0])


def _with(opened: Callable[..., object]) -> Callable[[Path], bytes]:
    def unpack(path: Path) -> bytes:
        with opened(path, "rb") as file:  # type: ignore[attr-defined]
            return bytes(file.read())

    return unpack


PACKINGS: dict[bytes, Callable[[Path], bytes]] = {
    b"\x1f\x8b": _with(gzip.open),
    b"\x28\xb5\x2f\xfd": _zstd,
    b"\xfd7zXZ\x00": _with(lzma.open),
    b"BZh": _with(bz2.open),
    b"PK\x03\x04": _zip,
}
"""First bytes of a packed file -> what unpacks it."""
