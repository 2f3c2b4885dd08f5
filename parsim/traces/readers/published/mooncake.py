"""Mooncake traces (FAST'25) and the layouts made after them (AIPerf, Dynamo): one JSON object a line.

`timestamp` (milliseconds), `input_length`, `output_length`, `hash_ids`: one id per 512 tokens of the prompt, the
last one for the partial block too, which is left out because only full blocks can be shared. Others leave
`hash_ids` out, write `created_time`, `input_tokens`, `output_tokens`, have a text (`text_input`) in place of its
length, other blocks (told from the lengths), or sessions whose later turns have a `delay` (milliseconds after the
turn before them has ended) and no time. Mooncake's own time stamps stand on ticks of about 3 s.
"""

from __future__ import annotations

from parsim.traces.readers.format import JSON, Format

BLOCK_TOKENS = 512
FIELDS = {
    "arrival_s": ("timestamp", "created_time"),
    "prompt_tokens": ("input_length", "input_tokens"),
    "output_tokens": ("output_length", "output_tokens"),
    "prefix_hashes": ("hash_ids",),
    "prompt": ("text_input",),
}


def _format(name: str, signature: tuple[str, ...], title: str) -> Format:
    return Format(
        name=name,
        title=title,
        origin="a file in the layout of Mooncake's traces, FAST'25 (github.com/kvcache-ai/Mooncake)",
        signature=signature,
        kinds=(*JSON, "parquet"),
        fields=FIELDS,
        time_unit="ms",
        hash_block_size=BLOCK_TOKENS,
        licence="Apache-2.0 where it is Mooncake's own",
    )


FORMAT = _format(
    "mooncake", ("timestamp", "input_length", "output_length"), "Mooncake and AIPerf trace JSONL"
)
ALIASES = _format(
    "dynamo", ("created_time", "output_tokens"), "Dynamo trace JSONL (Mooncake's with other names)"
)
TEXT = _format(
    "mooncake-text", ("text_input", "output_length"), "AIPerf trace JSONL with prompts in place of lengths"
)
TURNS = _format(
    "mooncake-turns", ("session_id", "output_length"), "AIPerf multi-turn JSONL: sessions with delays"
)
