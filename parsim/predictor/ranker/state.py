"""What a training run has come to: its history, and the state of an unfinished one on disk."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from parsim.errors import UserError
from parsim.files import replacing


@dataclass
class History:
    """What a run did.

    Attributes:
        epochs: one entry an epoch: mean loss, validation tau_b.
        best_epoch: the epoch (from 1) whose weights were kept.
        wall_s, cpu_s: seconds spent, over all parts of a resumed run.
        target: mean and standard deviation of the (log) length that a pointwise score counts from and in.
    """

    epochs: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    target: tuple[float, float] = (0.0, 1.0)


def save_state(file: Path, state: dict[str, Any]) -> None:
    """Write the state, with its `fingerprint`, in place of an older one."""
    with replacing(file) as temporary:
        torch.save(state, temporary)


def load_state(file: Path, fingerprint: str, device: torch.device) -> dict[str, Any]:
    """The state in `file`.

    Raises:
        UserError: it is damaged, or of a run with another fingerprint (recipe, encoder, data).
    """
    try:
        with zipfile.ZipFile(file) as archive:
            if archive.testzip() is not None:  # torch does not look at the checksums
                raise zipfile.BadZipFile("damaged")
        state: dict[str, Any] = torch.load(file, weights_only=True, map_location=device)
        known = str(state["fingerprint"])
    except Exception as error:
        raise UserError(f"{file}: unreadable training state; remove it to start anew") from error
    if known != fingerprint:
        raise UserError(
            f"{file}: an unfinished run with another recipe or other data; remove it to start anew"
        )
    return state
