"""One colour and one dash a policy, throughout every page.

Colours are those of Okabe and Ito ("Color Universal Design", 2008), which readers with any of the common
colour-vision deficiencies tell apart, darkened where needed to keep contrast on white and on black. A dash pattern
goes with each, so that a line is told apart in a grey print as well.
"""

from __future__ import annotations

COLOURS: dict[str, str] = {
    "fcfs": "#7a7a7a",
    "pointwise": "#e08e00",
    "listwise": "#009e73",
    "pars": "#1f78c8",
    "oracle": "#c2609a",
    "pars-plus": "#8c6bb1",
    "pars-cross": "#4fb0e6",
    "prompt-sjf": "#d55e00",
    "hrrn": "#a89600",
    "bound": "#b0b0b0",
}
DASHES: dict[str, list[int]] = {
    "fcfs": [1, 0],
    "pointwise": [6, 3],
    "listwise": [2, 2],
    "pars": [1, 0],
    "oracle": [8, 2, 2, 2],
    "pars-plus": [10, 3],
    "pars-cross": [4, 2],
    "prompt-sjf": [3, 5],
    "hrrn": [8, 4],
    "bound": [1, 3],
}
_OTHERS = ("#8c510a", "#35978f", "#bf812d", "#c51b7d", "#4d9221")

GOOD, POOR, NEUTRAL = "#1f78c8", "#d55e00", "#7a7a7a"


def colour(name: str) -> str:
    """The colour of policy `name`; a policy that is not one of the named ones gets a stable colour of its own."""
    return COLOURS.get(name) or _OTHERS[sum(map(ord, name)) % len(_OTHERS)]


def dash(name: str) -> list[int]:
    """The dash pattern of policy `name`, in pixels on and off."""
    return DASHES.get(name, [5, 2, 1, 2])


def scale(labels: dict[str, str]) -> tuple[list[str], list[str], list[list[int]]]:
    """Domain, colours and dashes for a chart whose series are labelled by `labels` (policy name -> label)."""
    return list(labels.values()), [colour(n) for n in labels], [dash(n) for n in labels]
