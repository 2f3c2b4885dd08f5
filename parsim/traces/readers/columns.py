"""Which of a file's columns are taken for what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parsim.errors import UserError, closest
from parsim.traces.readers.format import Format
from parsim.traces.readers.names import find, meaning
from parsim.traces.readers.source import Source
from parsim.traces.reading import COLUMNS, Reading
from parsim.traces.trace import SCORE_PREFIX

TIMES = ("arrival_s", "delay_s", "end")


@dataclass(frozen=True)
class Taken:
    """Which columns of a file are taken for what.

    Attributes:
        names: schema column (also `end`, `failure`, `response`, `model`) -> the file's name for it.
        units: of time columns whose name says one.
        sure: columns that the user named, or that bear the schema's own name.
        failures: columns that tell whether a request failed.
    """

    names: Mapping[str, str]
    units: Mapping[str, str]
    sure: frozenset[str]
    failures: tuple[str, ...]

    def all(self) -> list[str]:
        return list(dict.fromkeys((*self.names.values(), *self.failures)))


def take(source: Source, names: Sequence[str], form: Format, reading: Reading) -> Taken:
    """Choose a column for each thing: the user's word, the format's, the schema's own name, the surest meaning.

    Raises:
        UserError: the user named a column that is not there.
    """
    chosen: dict[str, str] = {}
    sure = set()
    for column, wanted in reading.column.items():
        given = find(wanted, names)
        if given is None:
            near = closest(wanted, names)
            hint = f"; did you mean {near!r}?" if near else ""
            found = ", ".join(names[:12]) or "none"
            raise UserError(
                f"{source.path}: no column {wanted!r}, asked for as {column}{hint} (found: {found})"
            )
        chosen[column] = given
        sure.add(column)
    failures = [
        one for one in (find(name, names) for name in form.fields.get("failure", ())) if one is not None
    ]
    for column, known in form.fields.items():
        there = [one for one in (find(name, names) for name in known) if one is not None]
        if there and column != "failure" and column not in chosen:
            chosen[column] = there[0]
    taken = {*chosen.values()}
    meant: dict[str, list[tuple[int, int, str]]] = {}
    for at, name in enumerate(names):
        if name.startswith(SCORE_PREFIX) and name not in taken:
            chosen[name] = name
        elif name in COLUMNS and name not in taken and name not in chosen:
            chosen[name] = name
            sure.add(name)
        elif name not in taken and (one := meaning(name)) is not None:
            if one.column == "failure":
                failures.append(name)
            else:
                meant.setdefault(one.column, []).append((one.rank, at, name))
    for column, candidates in meant.items():
        if column not in chosen:
            chosen[column] = min(candidates)[2]
    units = {
        column: said.unit
        for column, name in chosen.items()
        if (said := meaning(name)) is not None and said.unit is not None and said.column in TIMES
    }
    return Taken(chosen, units, frozenset(sure), tuple(dict.fromkeys(failures)))
