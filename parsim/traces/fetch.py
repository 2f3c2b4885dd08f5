"""Fetch public traces by name: over HTTPS, checked, and resumed where a download broke off."""

from __future__ import annotations

import hashlib
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from parsim.errors import UserError, nearest

CATALOGUE = Path(__file__).parent / "bundled" / "catalogue.json"
CHUNK_BYTES = 1 << 20
TIMEOUT_S = 30.0

Progress = Callable[[int, int | None], None]
"""Called with (bytes had, bytes in all or None)."""


@dataclass(frozen=True)
class PublicTrace:
    """A trace that others publish.

    Attributes:
        name: what it is fetched by.
        url: where it is; HTTPS (plain HTTP only for this machine's own loopback address).
        title, licence: for people.
        sha256: the file's checksum; None where nobody here has seen the file: the first fetch records it.
    """

    name: str
    url: str
    title: str
    licence: str
    sha256: str | None = None

    @property
    def file_name(self) -> str:
        return self.name + "".join(Path(urlsplit(self.url).path).suffixes[-1:])


def catalogue(path: Path = CATALOGUE) -> dict[str, PublicTrace]:
    """Public traces by name.

    Raises:
        UserError: the file is not a JSON list of objects with the attributes of `PublicTrace`.
    """
    try:
        entries = [PublicTrace(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path}: is not a catalogue of traces ({error})") from None
    return {entry.name: entry for entry in entries}


def find(name: str, known: dict[str, PublicTrace]) -> PublicTrace:
    """Raises `UserError`, with the nearest name, if the catalogue has no such trace."""
    if name not in known:
        raise UserError(f"unknown trace {name!r}{nearest(name, known)}; see `parsim traces list`")
    return known[name]


def fetch(trace: PublicTrace, folder: Path, progress: Progress = lambda had, total: None) -> tuple[Path, str]:
    """Download a trace into a folder; a file already there is checked and kept.

    An interrupted download stays as `FILE.part` and the next call goes on from its end. Nothing appears
    under the final name before its checksum is right.

    Returns:
        The file, and what is known of its checksum: "verified", "recorded" (first sight; it is written to
        `FILE.sha256`) or "as recorded" (the same as at first sight).

    Raises:
        UserError: the address is not HTTPS, the server cannot be reached or answers with an error, or the
            checksum is another.
    """
    _require_https(trace.url)
    target = folder / trace.file_name
    part, record = folder / f"{target.name}.part", folder / f"{target.name}.sha256"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        expected = trace.sha256 or (record.read_text().split()[0] if record.is_file() else None)
        if target.is_file():
            _check(target, expected, "delete it to fetch it again")
        else:
            _download(trace.url, part, progress)
            try:
                _check(part, expected, "what was fetched is deleted; try again, or tell the maintainers")
            except UserError:
                part.unlink()
                raise
            os.replace(part, target)
        if trace.sha256 is not None:
            return target, "verified"
        if expected is not None:
            return target, "as recorded"
        record.write_text(f"{_sha256(target)}  {target.name}\n")
        return target, "recorded"
    except urllib.error.HTTPError as error:
        raise UserError(
            f"{trace.url}: the server answers {error.code} {error.reason}; check the address"
        ) from None
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        kept = f"; {part.stat().st_size:,} bytes are kept, run it again to go on" if part.is_file() else ""
        reason = getattr(error, "reason", error)
        raise UserError(f"{trace.url}: cannot be reached ({reason}){kept or '; check the network'}") from None
    except OSError as error:
        raise UserError(f"{target}: cannot be written ({error.strerror}); choose another place") from None


def _download(url: str, part: Path, progress: Progress) -> None:
    """Append to `part` what it lacks; start anew where the server cannot resume."""
    had = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={had}-"} if had else {})
    try:
        answer = _opener().open(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not had:
            raise
        if error.headers.get("Content-Range", "") == f"bytes */{had}":  # it was whole already
            return
        part.unlink()
        return _download(url, part, progress)
    with answer:
        resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {had}-")
        had = had if resumed else 0
        length = answer.headers.get("Content-Length")
        total = had + int(length) if length is not None else None
        with part.open("ab" if resumed else "wb") as file:
            progress(had, total)
            while chunk := answer.read(CHUNK_BYTES):
                file.write(chunk)
                had += len(chunk)
                progress(had, total)
    if total is not None and had < total:
        raise ConnectionError(f"the connection closed after {had:,} of {total:,} bytes")


def _require_https(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(parts.hostname or "")):
        return
    raise UserError(f"{url}: only HTTPS addresses are fetched (HTTP from this machine alone)")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _HttpsRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect only to where `fetch` may go."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):  # type: ignore[no-untyped-def]
        _require_https(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_HttpsRedirects)


def _check(path: Path, expected: str | None, mend: str) -> None:
    if expected is not None and (found := _sha256(path)) != expected:
        raise UserError(f"{path}: sha256 is {found}, expected {expected}; {mend}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
