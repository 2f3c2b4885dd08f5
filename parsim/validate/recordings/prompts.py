"""The token ids of recorded prompts, as far as prompts share them: the engine's prefix cache serves those once."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from parsim.errors import UserError
from parsim.json_lines import json_lines

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

    Raises:
        UserError: that file is no such workload, and nothing says that it is another file.
    """
    name = Path(str(facts.get("dataset_path") or "")).name
    path = next((p for p in (folder / name, folder.parent / name) if name and _is_file(p)), None)
    if path is None:
        return None, (
            f"the replayed workload{f' ({name})' if name else ''} is not beside the recording, so prompts are taken "
            "to share nothing in the prefix cache"
        )
    known = facts.get("dataset_hash")
    if known and _sha256(path) != known:
        return None, f"{name} is not the workload that was replayed (its hash differs); not used"
    rows = json_lines(path)
    prompts = [_token_ids(path, number, row) for number, row in rows if "sub_requests" not in row]
    if [len(prompt) for prompt in prompts[: len(prompt_tokens)]] != list(prompt_tokens):
        return None, f"{name} has other prompt lengths than the recording; not used"
    found = shared_blocks(prompts[: len(prompt_tokens)])
    return (
        found,
        f"prompts as in {name}: {sum(map(bool, found))} of {len(found)} share their first blocks with another",
    )


def _token_ids(path: Path, number: int, row: Mapping[str, Any]) -> list[int]:
    ids = row.get("input_tok_ids") or []
    if not isinstance(ids, list) or not all(isinstance(token, int) for token in ids):
        raise UserError(
            f"{path}: line {number}: input_tok_ids must be a list of token ids (whole numbers); mend the file, or "
            "move it away to go without the prompts"
        )
    return ids


def _is_file(path: Path) -> bool:
    """Whether there is such a file; a name that no file can have is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
