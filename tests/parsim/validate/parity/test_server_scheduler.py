"""A vLLM server with `ParsScheduler`: `vllm bench serve`, an OpenAI client that sends scores, aborts midway."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("vllm")
pytest.importorskip("pandas", reason="vllm bench serve needs pandas")

from parsim.scheduler.settings import SCHEDULER_CLASS
from parsim.validate.live.architectures import write_model_folder

pytestmark = pytest.mark.vllm

START_LIMIT_S = 240.0
BENCH_SERVE = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
"""What `vllm bench serve` does; the `vllm` command itself does not find its version in the CPU build."""
NUM_BLOCKS = 24


@dataclass(frozen=True)
class Server:
    url: str
    metrics_url: str
    model: Path
    environment: dict[str, str]

    def gauges(self) -> dict[str, float]:
        """vLLM's and the scheduler's counters that tell of leftovers, by name."""
        found = {}
        for url in (f"{self.url}/metrics", self.metrics_url):
            with urllib.request.urlopen(url, timeout=10) as answer:
                text = answer.read().decode()
            for name, value in re.findall(r"^([a-z_:]+)(?:\{[^}]*\})? ([0-9.eE+-]+)$", text, re.MULTILINE):
                found[name] = found.get(name, 0.0) + float(value)
        return found

    def wait_until_idle(self) -> dict[str, float]:
        deadline = time.monotonic() + 30
        while True:
            gauges = self.gauges()
            busy = gauges["vllm:num_requests_running"] + gauges["vllm:num_requests_waiting"]
            if (not busy and not gauges["parsim_tracked"]) or time.monotonic() > deadline:
                return gauges
            time.sleep(0.2)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    model = tmp_path_factory.mktemp("tiny")
    write_model(model)
    port, metrics_port = free_port(), free_port()
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }
    environment.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
    settings = {
        "policy": "pars",
        "starvation_threshold_s": 5,
        "metrics_port": metrics_port,
        "do_no_harm": False,
    }
    log = (model / "server.log").open("wb")
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(model), "--served-model-name", "tiny", "--load-format", "dummy"]
    command += ["--dtype", "bfloat16", "--enforce-eager", "--port", str(port), "--host", "127.0.0.1"]
    command += ["--max-model-len", "512", "--block-size", "32", "--max-num-seqs", "8"]
    command += ["--max-num-batched-tokens", "256", "--num-gpu-blocks-override", str(NUM_BLOCKS)]
    command += ["--kv-cache-memory-bytes", str(64 << 20), "--scheduler-cls", SCHEDULER_CLASS]
    command += ["--additional-config", json.dumps({"parsim": settings})]
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    served = Server(
        f"http://127.0.0.1:{port}", f"http://127.0.0.1:{metrics_port}/metrics", model, environment
    )
    try:
        wait_for_start(process, served.url, model / "server.log")
        yield served
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
        log.close()


def write_model(folder: Path) -> None:
    """The tiny model with a tokenizer of words w4, w5, ..., all in numbers."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    write_model_folder("tiny", folder)
    words = ["<s>", "</s>", "<pad>", "<unk>", *(f"w{number}" for number in range(4, 1024))]
    inner = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    )
    tokenizer.save_pretrained(folder)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_start(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2):
                return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the server did not start:\n{log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.5)


def assert_nothing_left(gauges: dict[str, float]) -> None:
    assert gauges["vllm:num_requests_running"] == 0
    assert gauges["vllm:num_requests_waiting"] == 0
    assert gauges["vllm:kv_cache_usage_perc"] == 0
    assert gauges["parsim_waiting"] == 0
    assert gauges["parsim_tracked"] == 0


def test_vllms_own_benchmark_drives_it(server: Server) -> None:
    """Its requests carry no score; all are served."""
    command = [sys.executable, "-c", BENCH_SERVE]
    command += ["--backend", "openai", "--base-url", server.url, "--endpoint", "/v1/completions"]
    command += ["--model", "tiny", "--tokenizer", str(server.model), "--dataset-name", "random"]
    command += ["--random-input-len", "40", "--random-output-len", "12", "--num-prompts", "60"]
    command += ["--request-rate", "200", "--ignore-eos", "--disable-tqdm"]
    done = subprocess.run(
        command, env=server.environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"Successful requests:\s+60\b", done.stdout), done.stdout[-3000:]
    gauges = server.wait_until_idle()
    assert_nothing_left(gauges)
    assert gauges["parsim_unscored"] >= 60


def test_scores_order_the_queue_and_aborted_requests_leave_nothing(server: Server) -> None:
    """150 streamed requests at once, every fifth given up midway; the short ones overtake the long."""
    before = server.wait_until_idle()
    rng = random.Random(3)
    lengths = [rng.choice([4, 6, 90, 120]) for _ in range(150)]
    finished = asyncio.run(send_all(server.url, lengths, abort_every=5))
    assert sum(place is None for place in finished) == 30
    after = server.wait_until_idle()
    assert_nothing_left(after)
    assert after["parsim_scored"] - before["parsim_scored"] == 150
    places = [(length, place) for length, place in zip(lengths, finished, strict=True) if place is not None]
    short = [place for length, place in places if length <= 6]
    long = [place for length, place in places if length > 6]
    assert sum(short) / len(short) < 0.6 * sum(long) / len(long)


async def send_all(url: str, lengths: list[int], abort_every: int) -> list[int | None]:
    """The place in which each request finished; None for those that were given up."""
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=240)
    finished = 0

    async def send(number: int, length: int) -> int | None:
        nonlocal finished
        stream = await client.completions.create(
            model="tiny",
            prompt=[4 + (number + place) % 1000 for place in range(30)],
            max_tokens=length,
            temperature=0,
            stream=True,
            extra_body={"ignore_eos": True, "vllm_xargs": {"pars_score": float(length)}},
        )
        if number % abort_every == 0:
            if number % (2 * abort_every) == 0:
                await anext(aiter(stream))  # half of them after the first token, half while they wait
            await stream.close()
            return None
        async for _ in stream:
            pass
        finished += 1
        return finished

    try:
        return await asyncio.gather(*(send(number, length) for number, length in enumerate(lengths)))
    finally:
        await client.close()
