"""docs/traces.md is what the readers say."""

from __future__ import annotations

from pathlib import Path

from parsim.traces.readers.listing import markdown
from parsim.traces.reading import COLUMNS
from parsim.traces.trace import OPTIONAL, REQUIRED

DOC = Path(__file__).parents[3] / "docs/traces.md"


def test_the_table_of_formats_is_generated():
    assert DOC.read_text(encoding="utf-8").endswith(markdown()), "run `parsim traces list --markdown`"


def test_the_schema_is_whole():
    text = DOC.read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in text for name in (*REQUIRED, *OPTIONAL))
    assert set(COLUMNS) == {*REQUIRED, *OPTIONAL, "hash_block_size"}
