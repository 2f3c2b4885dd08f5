"""Put the shipped predictors' scores on the bundled trace: `python -m parsim.studies.score_bundled FOLDER`.

FOLDER holds the corpora's `*_lengths.jsonl`: the bundled trace carries ids, no text. Only numbers are
written. Scores are computed as the machine computes them fastest (16-bit floats where it can), so another
machine may differ in the third decimal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from parsim.errors import UserError
from parsim.json_lines import json_lines
from parsim.predictor.corpora.split import refuse_overlap
from parsim.predictor.scoring.predictor import load_predictor
from parsim.predictor.scoring.score import describe
from parsim.predictor.shipped import SHIPPED, shipped_folder
from parsim.studies.bundle import CORPORA
from parsim.traces import Trace, bundled_trace, write_trace
from parsim.traces.trace import BUNDLED

DECIMALS = 4


def prompts_of(trace: Trace, folder: Path) -> list[str]:
    """The prompt of each request, in trace order, by corpus (`client_id`) and id.

    Raises:
        UserError: a corpus or a prompt is not in the folder.
    """
    found: dict[tuple[str, str], str] = {}
    for corpus in CORPORA:
        file = folder / f"{corpus}_lengths.jsonl"
        if not file.is_file():
            raise UserError(f"{file}: no such file; name the folder with {', '.join(CORPORA)}_lengths.jsonl")
        found |= {(corpus, str(row["id"])): row["prompt"] for _, row in json_lines(file)}
    wanted = list(zip(trace.frame["client_id"], trace.frame["request_id"], strict=True))
    missing = [key for key in wanted if key not in found]
    if missing:
        raise UserError(
            f"{folder}: no prompt of {len(missing)} requests, such as {missing[0][1]} of {missing[0][0]}"
        )
    return [found[key] for key in wanted]


def score_bundled(trace: Trace, prompts: Sequence[str], names: Sequence[str]) -> Trace:
    """The trace with a column a predictor, and a line of metadata on each.

    Raises:
        UserError: a predictor has seen one of the prompts in training.
    """
    frame, metadata = trace.frame, dict(trace.metadata)
    for name in names:
        predictor = load_predictor(name)
        refuse_overlap(prompts, predictor.training_keys, f"bundled trace, {name}")
        scores = pl.Series(f"score.{name}", predictor.score(prompts, os.cpu_count() or 1)).round(DECIMALS)
        frame = frame.with_columns(scores)
        metadata[f"score.{name}"] = describe(predictor)
    return Trace(frame, metadata)


def main(folder: Path) -> None:
    import torch

    torch.set_num_threads(1)
    trace = bundled_trace()
    names = [name for name in SHIPPED if shipped_folder(name)]
    write_trace(score_bundled(trace, prompts_of(trace, folder), names), BUNDLED)
    print(f"{BUNDLED.name}: scores of {', '.join(names)} for {len(trace):,} requests")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    except UserError as error:
        sys.exit(f"error: {error}")
