"""The token ids of recorded prompts, as far as prompts share them: the engine's prefix cache serves those once."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from validate.json_lines import json_lines

HASH_TOKENS = 16
"""Prompt tokens that one number of `shared_blocks` stands for: vLLM's block size on GPUs."""


def shared_blocks(prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Numbers of each prompt's leading full blocks that another prompt has too, front first.

    Equal numbers mean equal content from the start of the prompt.
    """
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    chains = []
    for prompt in prompts:
        node, chain = -1, []
        for start in range(0, len(prompt) - HASH_TOKENS + 1, HASH_TOKENS):
            node = numbers.setdefault((node, tuple(prompt[start : start + HASH_TOKENS])), len(numbers))
            chain.append(node)
        chains.append(chain)
    holders = Counter(node for chain in chains for node in chain)
    return [[node for node in chain if holders[node] > 1] for chain in chains]


def recorded_prompts(
    folder: Path, facts: Mapping[str, Any], prompt_tokens: Sequence[int]
) -> tuple[list[list[int]] | None, str]:
    """`shared_blocks` of the workload that a recording replayed, and in words what was found.

    The workload is the file that `dataset_path` of `facts` (the recording's meta.json) names, in the recording's
    folder or beside it: a line a request, in the recording's order, with `input_tok_ids`.

    Args:
        folder: the recording.
        facts: its meta.json.
        prompt_tokens: lengths of the recorded prompts, in the order of its lines.
    """
    name = Path(str(facts.get("dataset_path", ""))).name
    path = next((p for p in (folder / name, folder.parent / name) if name and p.is_file()), None)
    if path is None:
        return None, (
            f"the replayed workload{f' ({name})' if name else ''} is not beside the recording, so prompts are taken "
            "to share nothing in the prefix cache"
        )
    known = facts.get("dataset_hash")
    if known and hashlib.sha256(path.read_bytes()).hexdigest() != known:
        return None, f"{name} is not the workload that was replayed (its hash differs); not used"
    prompts = [row.get("input_tok_ids") or [] for row in json_lines(path) if "sub_requests" not in row]
    if [len(prompt) for prompt in prompts[: len(prompt_tokens)]] != list(prompt_tokens):
        return None, f"{name} has other prompt lengths than the recording; not used"
    found = shared_blocks(prompts[: len(prompt_tokens)])
    return (
        found,
        f"prompts as in {name}: {sum(map(bool, found))} of {len(found)} share their first blocks with another",
    )
