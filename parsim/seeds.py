"""Random numbers by seed."""

from __future__ import annotations

import numpy as np

from parsim.errors import UserError


def generator(seed: int, stream: int | None = None) -> np.random.Generator:
    """Random numbers of `seed`; those of a numbered `stream` are independent of all others of the seed.

    Raises:
        UserError: the seed is negative.
    """
    if seed < 0:
        raise UserError(f"seed {seed}: must be 0 or more")
    return np.random.default_rng(seed if stream is None else [seed, stream])
