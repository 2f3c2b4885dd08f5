"""Fetching, against a server on this machine that can break off, refuse to resume, redirect and lie."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from parsim.traces import UserError
from parsim.traces.fetch import CATALOGUE, PublicTrace, catalogue, fetch, find

CONTENT = bytes(range(256)) * 4096  # 1 MiB
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """What it shall do, and what it was asked for."""

    break_after: int | None = None
    resumes = True
    content = CONTENT

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges: list[str | None] = []

    def url(self, path: str = "/t.csv") -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.ranges.append(asked)
        if self.path == "/absent.csv":
            return self.send_error(404, "Not Found")
        if self.path == "/away.csv":
            self.send_response(302)
            self.send_header("Location", "http://example.com/t.csv")
            return self.end_headers()
        content, start = self.server.content, 0
        if asked and self.server.resumes:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                return self.end_headers()
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = self.server.break_after
        self.wfile.write(content[start : None if end is None else start + end])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def public(server: Server, path: str = "/t.csv", sha256: str | None = SHA256) -> PublicTrace:
    return PublicTrace("mine", server.url(path), "a trace", "CC0", sha256)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_whole_download_is_checked_and_reports_progress(server, tmp_path):
    seen: list[tuple[int, int | None]] = []
    path, checksum = fetch(public(server), tmp_path, lambda had, total: seen.append((had, total)))
    assert path == tmp_path / "mine.csv"
    assert path.read_bytes() == CONTENT
    assert checksum == "verified"
    assert names(tmp_path) == ["mine.csv"]
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))


def test_broken_download_is_kept_and_resumed(server, tmp_path):
    server.break_after = 300_000
    with pytest.raises(UserError, match="300,000 bytes are kept, run it again to go on"):
        fetch(public(server), tmp_path)
    assert names(tmp_path) == ["mine.csv.part"]
    server.break_after = None
    seen: list[int] = []
    path, _ = fetch(public(server), tmp_path, lambda had, total: seen.append(had))
    assert server.ranges == [None, "bytes=300000-"]
    assert seen[0] == 300_000
    assert path.read_bytes() == CONTENT
    assert names(tmp_path) == ["mine.csv"]


def test_server_that_cannot_resume_starts_anew(server, tmp_path):
    (tmp_path / "mine.csv.part").write_bytes(b"something else")
    server.resumes = False
    assert fetch(public(server), tmp_path)[0].read_bytes() == CONTENT


def test_part_that_was_whole_is_accepted(server, tmp_path):
    (tmp_path / "mine.csv.part").write_bytes(CONTENT)
    assert fetch(public(server), tmp_path)[0].read_bytes() == CONTENT


def test_part_longer_than_the_file_starts_anew(server, tmp_path):
    (tmp_path / "mine.csv.part").write_bytes(CONTENT + b"x")
    assert fetch(public(server), tmp_path)[0].read_bytes() == CONTENT
    assert server.ranges == [f"bytes={len(CONTENT) + 1}-", None]


def test_wrong_checksum_leaves_nothing(server, tmp_path):
    server.content = CONTENT[:-1] + b"!"
    with pytest.raises(UserError, match=f"sha256 is .*, expected {SHA256}; what was fetched is deleted"):
        fetch(public(server), tmp_path)
    assert names(tmp_path) == []


def test_unknown_checksum_is_recorded_then_held_to(server, tmp_path):
    unknown = public(server, sha256=None)
    assert fetch(unknown, tmp_path)[1] == "recorded"
    assert (tmp_path / "mine.csv.sha256").read_text() == f"{SHA256}  mine.csv\n"
    assert fetch(unknown, tmp_path)[1] == "as recorded"
    (tmp_path / "mine.csv").unlink()
    server.content = b"changed"
    with pytest.raises(UserError, match="sha256 is"):
        fetch(unknown, tmp_path)


def test_file_already_there_is_not_fetched_again_but_checked(server, tmp_path):
    (tmp_path / "mine.csv").write_bytes(CONTENT)
    assert fetch(public(server), tmp_path)[1] == "verified"
    assert server.ranges == []
    (tmp_path / "mine.csv").write_bytes(b"spoilt")
    with pytest.raises(UserError, match="delete it to fetch it again"):
        fetch(public(server), tmp_path)


def test_http_errors_and_unreachable_servers(server, tmp_path):
    with pytest.raises(UserError, match="the server answers 404 Not Found; check the address"):
        fetch(public(server, "/absent.csv"), tmp_path)
    gone = PublicTrace("mine", "http://127.0.0.1:9/t.csv", "", "")
    with pytest.raises(UserError, match=r"cannot be reached .*refused.*; check the network"):
        fetch(gone, tmp_path)


def test_plain_http_elsewhere_is_refused_also_behind_a_redirect(server, tmp_path):
    for url in ("http://example.com/t.csv", "ftp://127.0.0.1/t.csv", "file:///etc/hosts"):
        with pytest.raises(UserError, match="only HTTPS addresses are fetched"):
            fetch(PublicTrace("mine", url, "", ""), tmp_path)
    with pytest.raises(UserError, match=r"http://example\.com/t\.csv: only HTTPS addresses are fetched"):
        fetch(public(server, "/away.csv"), tmp_path)


def test_catalogue_is_https_with_licences_and_known_sums(shared):
    known = catalogue(CATALOGUE)
    assert all(entry.url.startswith("https://") and entry.licence for entry in known.values())
    for name, file in (
        ("azure-2023-conv", "azure-2023-conv.csv"),
        ("mooncake-conversation", "mooncake-conversation.jsonl"),
    ):
        content = (shared / "data/traces" / file).read_bytes()
        assert known[name].sha256 == hashlib.sha256(content).hexdigest()
        assert known[name].file_name == file


def test_command_line_with_a_catalogue_of_one_s_own(server, tmp_path):
    known = tmp_path / "mine.json"
    entry = {"name": "mine", "url": server.url(), "title": "a trace", "licence": "CC0", "sha256": SHA256}
    known.write_text(json.dumps([entry]))
    arguments = ["fetch", "mine", "--out", tmp_path / "data", "--catalogue", known]
    command = [sys.executable, "-m", "traces", *map(str, arguments)]
    server.break_after = 500_000
    broken = subprocess.run(command, capture_output=True, text=True)
    assert broken.returncode == 2
    assert broken.stderr.startswith(
        f"error: {server.url()}: cannot be reached (the connection closed after 500,000"
    )
    server.break_after = None
    whole = subprocess.run(command, capture_output=True, text=True)
    assert whole.stdout.endswith("mine.csv: 1,048,576 bytes, checksum verified; licence CC0\n")
    assert server.ranges == [None, "bytes=500000-"]
    known.write_text("{}")
    known.write_text('[{"nam": 1}]')
    assert "is not a catalogue of traces" in subprocess.run(command, capture_output=True, text=True).stderr


def test_unknown_name_gives_the_nearest():
    with pytest.raises(UserError, match="unknown trace 'azure-2023-con'; did you mean 'azure-2023-conv'"):
        find("azure-2023-con", catalogue())
