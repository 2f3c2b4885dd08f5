"""DATA as the commands take it: a file in one of parsim's layouts, or a public corpus."""

from __future__ import annotations

from pathlib import Path

from parsim.errors import UserError
from parsim.predictor.corpora.corpus import Corpus, read_corpus

HUB = "hub"
"""Stands for the file of a public corpus: it is then fetched from the Hugging Face hub."""


def read_data(data: Path, corpus: str | None, unit: str | None, encoder: str) -> Corpus:
    """DATA of a command: a file in one of parsim's layouts or, with --corpus, in that of a public corpus.

    Args:
        data: the file; with `corpus`, "hub" fetches it from the Hugging Face hub unless a file is called so.
        corpus: name of a public corpus, or None.
        unit: what its lengths count, tokens by default; None without `corpus`.
        encoder: whose tokenizer counts tokens.

    Raises:
        UserError: an unknown corpus or unit, a unit without a corpus, or see `read_corpus`.
    """
    if corpus is None:
        if unit is not None:
            raise UserError(
                f"unit {unit!r}: the file states its lengths itself; leave the unit out, or name a public corpus"
            )
        return read_corpus(data)
    from parsim.predictor.corpora.paper_corpora import LAYOUTS, read_paper_corpus
    from parsim.predictor.ranker.encoder import load_encoder

    if corpus not in LAYOUTS:
        raise UserError(f"corpus {corpus!r}: unknown; there are {', '.join(LAYOUTS)}")
    counted = unit or "tokens"
    if counted not in ("tokens", "words", "chars"):
        raise UserError(f"unit {unit!r}: expected tokens, words or chars")
    file = None if data.name == HUB and not data.exists() else data
    tokenizer = load_encoder(encoder).tokenizer if counted == "tokens" else None
    return read_paper_corpus(corpus, file, unit=counted, tokenizer=tokenizer)  # type: ignore[arg-type]
