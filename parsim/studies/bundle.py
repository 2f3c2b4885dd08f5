"""Rebuild the bundled trace: `python -m parsim.studies.bundle FOLDER`, with the corpora's `*_lengths.jsonl` there.

Real prompt and response lengths of one model, as numbers only, under drawn arrivals. Only prompts that the
shipped predictors never saw (`is_held_out`) are used, so that their scores on this trace are honest.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parsim.command import run_cli
from parsim.errors import UserError
from parsim.json_lines import json_lines

if TYPE_CHECKING:
    import polars as pl

    from parsim.traces.trace import Trace

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

MODEL = "Llama-3.1-8B-Instruct"
CORPORA = {
    "mmlu_pro": "Meta-Llama-3_1-8B-Instruct",
    "zeroeval_gsm": "Meta-Llama-3.1-8B-Instruct",
    "zeroeval_math-l5": "Meta-Llama-3.1-8B-Instruct",
}
"""Apache-2.0 corpus -> its name for `MODEL`."""
HELD_OUT_BELOW = 0x55
RATE_PER_S = 12
SEED = 0


def is_held_out(request_id: str) -> bool:
    """Whether predictors must not train on it: the first byte of sha256(id) is under 0x55 (about a third)."""
    return sha256(request_id.encode()).digest()[0] < HELD_OUT_BELOW


def lengths(folder: Path) -> pl.DataFrame:
    """request_id, prompt_tokens, output_tokens, client_id (the corpus) of all held-out prompts.

    A prompt that stands in its corpus a second time under an id that is not held out is left out.
    """
    import polars as pl

    parts = []
    for corpus, model in CORPORA.items():
        path = folder / f"{corpus}_lengths.jsonl"
        if not path.is_file():
            raise UserError(f"{path}: no such file; name the folder with {', '.join(CORPORA)}_lengths.jsonl")
        rows = [row for _, row in json_lines(path)]
        seen = {_normalised(row["prompt"]) for row in rows if not is_held_out(str(row["id"]))}
        held = [row for row in rows if row["len"].get(model) and _normalised(row["prompt"]) not in seen]
        parts.append(
            pl.DataFrame(
                {
                    "request_id": [str(row["id"]) for row in held],
                    "prompt_tokens": [row["prompt_tokens"] for row in held],
                    "output_tokens": [row["len"][model] for row in held],
                    "client_id": corpus,
                }
            )
        )
    return pl.concat(parts)


def _normalised(prompt: str) -> str:
    return " ".join(prompt.casefold().split())


def build(folder: Path) -> Trace:
    """The bundled trace from the corpora in `folder`; the same each time."""
    from parsim.traces.draw.arrivals import Arrivals
    from parsim.traces.draw.joining import join
    from parsim.traces.trace import Trace

    trace = join(lengths(folder), Arrivals("poisson", {"rate": RATE_PER_S}), seed=SEED)
    about = {
        "name": "bundled",
        "source": "lengths of published outputs on MMLU-Pro and ZeroEval (GSM8K, MATH level 5) prompts",
        "licence": "Apache-2.0",
        "model": MODEL,
        "tokenizer": "cl100k_base",
        "caps": "the recorded runs cut responses at 4096 (ZeroEval) or 2048 (MMLU-Pro) of the model's tokens",
        "held_out": "first byte of sha256(request_id) < 0x55: the shipped predictors never saw these prompts",
    }
    return Trace(trace.frame, {**trace.metadata, **about})


@app.command()
def main(folder: Annotated[Path, typer.Argument(help="Folder with the corpora's *_lengths.jsonl.")]) -> None:
    """Rebuild the trace that comes with the package, without score columns."""
    from parsim.traces.trace import BUNDLED
    from parsim.traces.write import write_trace

    write_trace(build(folder), BUNDLED)


if __name__ == "__main__":
    run_cli(app)
