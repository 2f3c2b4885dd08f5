"""A vLLM server of our own: started, awaited, and ended, whatever happens in between."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parsim.errors import UserError
from parsim.scheduler.policy import Policy
from parsim.scheduler.settings import SCHEDULER_CLASS, settings_of
from parsim.validate.live.live_engine import on_cuda, require_vllm

START_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes:
        url: without `/v1`.
        process: its process; kill it to see what a client makes of that.
        log: its output.
    """

    url: str
    process: subprocess.Popen[bytes]
    log: Path


@contextmanager
def running_server(
    model: str | Path,
    settings: Mapping[str, Any],
    policy: Policy,
    log: Path,
    *,
    dummy: bool = False,
    seed: int = 0,
) -> Iterator[Server]:
    """Start `vllm serve` with `ParsScheduler` under `policy` on a free port; it is ended with the block.

    Raises:
        UserError: it does not come up; the last lines of its log are shown.
    """
    require_vllm()
    port = _free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16", "--seed", str(seed)]
    command += _options(settings)
    if not on_cuda():
        command += ["--enforce-eager", "--kv-cache-memory-bytes", str(1 << 30)]
    if dummy:
        command += ["--load-format", "dummy", "--skip-tokenizer-init"]
    parsim = settings_of(policy)
    command += ["--scheduler-cls", SCHEDULER_CLASS, "--additional-config", json.dumps({"parsim": parsim})]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=os.environ.copy(), start_new_session=True
        )
        try:
            _await(process, port, log)
            yield Server(f"http://127.0.0.1:{port}", process, log)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            # A server that was killed leaves its engine process behind; both are of one session.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _options(settings: Mapping[str, Any]) -> list[str]:
    words = []
    for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "block_size"):
        if settings.get(name) is not None:
            words += [f"--{name.replace('_', '-')}", str(settings[name])]
    if settings.get("num_gpu_blocks"):
        words += ["--num-gpu-blocks-override", str(settings["num_gpu_blocks"])]
    if settings.get("enable_prefix_caching") is not None:
        words.append(f"--{'' if settings['enable_prefix_caching'] else 'no-'}enable-prefix-caching")
    return words


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            tail = " | ".join(log.read_text(errors="replace").strip().splitlines()[-3:])
            raise UserError(
                f"the vLLM server ended with code {process.returncode} while starting: {tail[-400:]}"
            )
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.25)
    raise UserError(f"the vLLM server did not come up within {START_TIMEOUT_S:g} s; see {log.name}")


def server_facts(url: str) -> dict[str, Any]:
    """What a running server tells of its engine (`/metrics`, `/v1/models`), under `EngineConfig`'s names."""
    facts: dict[str, Any] = {}
    try:
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
            text = answer.read().decode(errors="replace")
        with urllib.request.urlopen(f"{url}/v1/models", timeout=10) as answer:
            entry = json.load(answer)["data"][0]
    except (urllib.error.URLError, OSError, KeyError, IndexError, json.JSONDecodeError):
        return facts
    found = re.search(r"^vllm:cache_config_info\{(.*?)\}", text, re.MULTILINE)
    labels = dict(re.findall(r'(\w+)="([^"]*)"', found[1])) if found else {}
    for name in ("block_size", "num_gpu_blocks"):
        if labels.get(name, "").isdigit():
            facts[name] = int(labels[name])
    if labels.get("enable_prefix_caching") in ("True", "False"):
        facts["enable_prefix_caching"] = labels["enable_prefix_caching"] == "True"
    if entry.get("max_model_len"):
        facts["max_model_len"] = int(entry["max_model_len"])
    return facts
