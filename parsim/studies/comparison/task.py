"""A data set of a comparison, read and split once for all its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from parsim.errors import UserError
from parsim.predictor.corpora.corpus import Corpus, Labelled
from parsim.predictor.corpora.data import HUB, read_data
from parsim.predictor.corpora.split import Split, prompt_keys, split
from parsim.studies.comparison.spec import DataSet, Variant


@dataclass(frozen=True)
class Task:
    """What is learned and what it is judged by.

    Attributes:
        spec: as the comparison states it.
        corpus: lengths of the file that is learned from.
        judges: the same with those of `spec.test_file`, if there is one.
        data: prompts with the lengths to learn, then those of `spec.test_file`, which are all held out.
        parts: which rows do what.
    """

    spec: DataSet
    corpus: Corpus
    judges: Corpus
    data: Labelled
    parts: Split

    @property
    def test_models(self) -> list[str]:
        """The models whose lengths judge."""
        return self.spec.test_on or self.spec.train_on or self.corpus.models[:1]

    def relabelled(self, models: Sequence[str]) -> Labelled:
        """The same prompts in the same order; those that are not held out are labelled by the mean of more models
        where they have one. `all` is every model of the corpus.
        """
        wide = self.corpus.label([*self.spec.train_on, *models])
        by_prompt = dict(zip(wide.prompts, wide.lengths.tolist(), strict=True))
        lengths = self.data.lengths.copy()
        for row in np.concatenate([self.parts.train, self.parts.validation]):
            lengths[row] = by_prompt[self.data.prompts[row]]
        return Labelled(self.data.prompts, lengths, self.data.censored, self.data.datasets)

    def check(self, variants: Sequence[Variant]) -> None:
        """Find a model that is not there, or judges too few prompts, before hours of training.

        Raises:
            UserError: one of these.
        """
        also = [name for one in variants for name in one.also_train_on if name != "all"]
        for names, corpus in ((also, self.corpus), (self.spec.ceiling, self.judges)):
            unknown = next((name for name in names if name not in corpus.models), None)
            if unknown is not None:
                raise UserError(
                    f"{corpus.source}: no lengths of model '{unknown}'; it has {', '.join(corpus.models)}"
                )
        held_out = set(self.data.take(self.parts.test).prompts)
        for test in self.test_models:
            answered = len(held_out & {*self.judges.label([test]).prompts})
            if answered < 2:
                raise UserError(
                    f"{self.judges.source}: model '{test}' answered {answered} of the {len(held_out)} held-out "
                    "prompts, too few to judge by"
                )


def prepare(spec: DataSet, base: Path, limit: int | None, encoder: str) -> Task:
    """Read and split; train on at most `limit` prompts. `encoder` has the tokenizer that counts a public corpus.

    Raises:
        UserError: a file, a data set within it or a model is not there, or a prompt of `spec.test_file` is in
            `spec.file` too.
    """
    corpus = _read(base / spec.file, spec.corpus, spec.unit, encoder)
    if spec.only_dataset is not None:
        frame = corpus.frame.filter(pl.col("dataset") == spec.only_dataset)
        if frame.is_empty():
            raise UserError(f"{corpus.source}: no rows of data set '{spec.only_dataset}'")
        corpus = Corpus(frame, corpus.source, corpus.unit, corpus.dropped)
    data = corpus.label(spec.train_on)
    parts = split(data, test_share=spec.test_share)
    if limit is not None and limit < len(parts.train):
        order = np.random.default_rng(0).permutation(parts.train)[:limit]
        parts = Split(np.sort(order), parts.validation, parts.test)
    if spec.test_file is None:
        return Task(spec, corpus, corpus, data, parts)
    other = _read(base / spec.test_file, None, None, encoder)
    if other.unit != corpus.unit:
        raise UserError(
            f"{other.source}: lengths in {other.unit}, those of {corpus.source} in {corpus.unit}: they cannot judge one"
            " ranking; leave test_file out, or count tokens"
        )
    judging = [model for model in spec.test_on if model in other.models]
    if not judging:
        raise UserError(f"{other.source}: test_on names none of its models, so that it judges nothing")
    more = other.label(judging)
    common = int(np.isin(prompt_keys(more.prompts), prompt_keys(data.prompts)).sum())
    if common:
        raise UserError(f"{other.source}: {common} of its prompts are in {corpus.source} too; leave them out")
    rows = np.arange(len(data), len(data) + len(more))
    return Task(
        spec,
        corpus,
        Corpus(pl.concat([corpus.frame, other.frame]), f"{corpus.source} and {other.source}"),
        data.followed_by(more),
        Split(parts.train, parts.validation, np.concatenate([parts.test, rows])),
    )


def _read(file: Path, corpus: str | None, unit: str | None, encoder: str) -> Corpus:
    if not file.exists() and not (corpus is not None and file.name == HUB):
        raise UserError(f"{file}: no such file; name the folder of the data")
    return read_data(file, corpus, unit, encoder)
