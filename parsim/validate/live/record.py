"""Record how long a model's responses are when it stops by itself: the corpus a predictor is trained on.

One JSON line a response: `id, sample, prompt, prompt_tokens, output_tokens, finish_reason, censored, model,
temperature, max_tokens`. `censored` is true where the token limit, not the model, ended the response: its
length is then only a lower bound.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parsim.errors import UserError
from parsim.json_lines import json_lines
from parsim.validate.live.live_engine import start_engine

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Prompt:
    """One prompt: `id` is unique in its file."""

    id: str
    text: str


@dataclass(frozen=True)
class Recording:
    """What a recording is made with; a resumed one must have the same.

    Args:
        model: folder or hub name of the model.
        samples: responses per prompt.
        temperature: sampling temperature.
        max_tokens: responses are cut there, and marked as censored.
        concurrency: requests in the engine at once.
        seed: the engine's seed.
    """

    model: str
    samples: int = 1
    temperature: float = 0.7
    max_tokens: int = 1024
    concurrency: int = 64
    seed: int = 0

    def stamp(self) -> dict[str, Any]:
        """The fields that every line carries and that a resumed run must share."""
        return {
            "model": Path(self.model).name,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }


def read_prompts(path: Path, limit: int | None = None) -> list[Prompt]:
    """Prompts of a JSONL or Parquet file (`prompt`, optional `id`) or of a text file, one a line.

    Raises:
        UserError: no such file, no `prompt` column, an empty prompt, or two rows with one id.
    """
    import polars as pl

    from parsim.predictor.corpora.corpus import read_table

    if not path.is_file():
        raise UserError(f"{path}: no such file; give a JSONL, Parquet or text file of prompts")
    frame = _lines(path) if path.suffix == ".txt" else read_table(path)
    if "prompt" not in frame.columns:
        raise UserError(f"{path}: no column 'prompt' (found: {', '.join(frame.columns) or 'none'})")
    if "id" not in frame.columns:
        frame = frame.with_row_index("id")
    nested = next((name for name in ("id", "prompt") if frame.schema[name].is_nested()), None)
    if nested is not None:
        raise UserError(f"{path}: {nested} holds {frame.schema[nested]}, expected text")
    frame = frame.select(pl.col("id").cast(pl.String), pl.col("prompt").cast(pl.String)).slice(0, limit)
    numbered = frame.with_row_index("row", offset=1)
    bare = numbered.filter(pl.col("prompt").str.strip_chars().fill_null("") == "")
    if bare.height:
        raise UserError(f"{path}: row {bare['row'][0]}: the prompt is empty; remove the row")
    nameless = numbered.filter(pl.col("id").is_null())
    if nameless.height:
        raise UserError(f"{path}: row {nameless['row'][0]}: has no id; give it one, or leave the column out")
    if frame["id"].is_duplicated().any():
        twice = frame.filter(pl.col("id").is_duplicated())["id"][0]
        raise UserError(f"{path}: id {twice!r} stands on more than one row; ids must be unique")
    return [Prompt(*row) for row in frame.iter_rows()]


def _lines(path: Path) -> pl.DataFrame:
    import polars as pl

    try:
        return pl.DataFrame({"prompt": path.read_text(encoding="utf-8").splitlines()})
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 text; save it as such") from error


def resume(out: Path, stamp: dict[str, Any]) -> set[tuple[str, int]]:
    """Which (id, sample) pairs `out` holds already; a last line that was cut off is removed.

    Raises:
        UserError: `out` was recorded with another model, temperature or token limit, or is no recording.
    """
    if not out.exists():
        return set()
    data = out.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(out, whole)
    done = set()
    for number, row in json_lines(out):
        other = {name: row.get(name) for name in stamp if row.get(name) != stamp[name]}
        if other:
            name, value = next(iter(other.items()))
            raise UserError(f"{out}: recorded with {name}={value}, now {stamp[name]}; name another OUT")
        prompt, sample = row.get("id"), row.get("sample")
        if not isinstance(prompt, str) or not isinstance(sample, int):
            raise UserError(f"{out}: line {number}: has no id and sample of a response; name another OUT")
        done.add((prompt, sample))
    return done


def record(
    prompts: list[Prompt],
    out: Path,
    recording: Recording,
    advance: Callable[[int, int], None] = lambda done, tokens: None,
) -> int:
    """Run what `out` lacks through an in-process engine; return the number of responses written.

    Every response is appended as it ends, so that an interrupted recording loses only what was in flight.

    Args:
        advance: called after each response with (1, output tokens).
    """
    stamp = recording.stamp()
    done = resume(out, stamp)
    work = [(p, s) for s in range(recording.samples) for p in prompts if (p.id, s) not in done]
    if not work:
        return 0
    engine = start_engine(
        recording.model,
        {
            "max_num_seqs": recording.concurrency,
            "max_num_batched_tokens": 2048,
            "max_model_len": _model_limit(recording.model, recording.max_tokens),
            "block_size": 32,
            "kv_bytes": 2 << 30,
        },
        seed=recording.seed + len(done),
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a", encoding="utf-8") as lines:
        for (prompt, sample), fields in _responses(engine, work, recording):
            row = asdict(prompt)
            lines.write(
                json.dumps(
                    {"id": row["id"], "sample": sample, "prompt": row["text"], **fields, **stamp},
                    ensure_ascii=False,
                )
                + "\n"
            )
            lines.flush()
            advance(1, fields["output_tokens"])
    return len(work)


def _model_limit(model: str, max_tokens: int) -> int:
    config = Path(model) / "config.json"
    longest = json.loads(config.read_text())["max_position_embeddings"] if config.is_file() else 8192
    return min(longest, max(4096, 2 * max_tokens))


def _responses(
    engine: Any, work: list[tuple[Prompt, int]], recording: Recording
) -> Iterator[tuple[tuple[Prompt, int], dict[str, Any]]]:
    from vllm import SamplingParams, TokensPrompt
    from vllm.sampling_params import RequestOutputKind

    tokenizer = engine.get_tokenizer()
    room = engine.model_config.max_model_len
    params = SamplingParams(
        temperature=recording.temperature,
        max_tokens=recording.max_tokens,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
    coming = iter(enumerate(work))
    flying: dict[str, tuple[tuple[Prompt, int], int]] = {}
    more = True
    while more or flying:
        while more and len(flying) < recording.concurrency:
            item = next(coming, None)
            if item is None:
                more = False
                break
            index, (prompt, sample) = item
            ids = chat_tokens(tokenizer, prompt.text)[: room - recording.max_tokens]
            engine.add_request(str(index), TokensPrompt(prompt_token_ids=ids), params)
            flying[str(index)] = ((prompt, sample), len(ids))
        for output in engine.step():
            if output.finished:
                key, prompt_tokens = flying.pop(output.request_id)
                last = output.outputs[0]
                yield (
                    key,
                    {
                        "prompt_tokens": prompt_tokens,
                        "output_tokens": len(last.token_ids),
                        "finish_reason": last.finish_reason,
                        "censored": last.finish_reason == "length",
                    },
                )


def chat_tokens(tokenizer: Any, text: str) -> list[int]:
    """Token ids of `text` as one user turn of the model's chat template (plain text where it has none)."""
    if not getattr(tokenizer, "chat_template", None):
        return list(tokenizer.encode(text))
    turn = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False
    )
    return list(tokenizer.encode(turn, add_special_tokens=False))
