"""A sweep file with options of the command line on top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from parsim.errors import UserError
from parsim.settings_file import setting
from parsim.sweep.spec import SweepSpec, name_after, parse_spec, read_spec
from parsim.traces.reading import Reading


def apply_options(
    file: Path | None,
    *,
    trace: str | None = None,
    reading: Reading | None = None,
    engine: str | None = None,
    put: Mapping[str, object] | None = None,
    set: Sequence[str] | None = None,
    policies: str | None = None,
    loads: str | None = None,
    seeds: str | None = None,
    scoring_cost: str | None = None,
    slo: Sequence[str] | None = None,
    objective: str | None = None,
    subject_to: Sequence[str] | None = None,
) -> SweepSpec:
    """The sweep of `file` (default: the bundled trace) with what the options say in place of its fields.

    `put`: how the model that the engine names is put on cards, by the fields of `PresetSource`.

    A sweep of another trace than the bundled one is named after the trace, unless its file gives a name.

    Raises:
        UserError: an option is not of its form, or the sweep file is not one.
    """
    spec = read_spec(file) if file is not None else SweepSpec()
    fields: dict[str, Any] = spec.model_dump(mode="json", exclude_unset=True)
    if trace is not None:
        fields["trace"] = trace
        if file is None and trace != "bundled":
            fields["name"] = name_after(Path(trace))
    if reading is not None and reading.spoken:
        source = fields.get("trace", {})
        source = {"path": source} if isinstance(source, str) else dict(source)
        columns = {**source.get("column", {}), **reading.column}
        fields["trace"] = {**source, **reading.spoken, "column": columns}
    if engine is not None:
        fields["engine"] = engine
    given = {name: value for name, value in (put or {}).items() if value is not None}
    if given:
        before = fields.get("engine", spec.engine)
        fields["engine"] = {**(before if isinstance(before, dict) else {"model": before}), **given}
    for text in set or ():
        name, value = _pair(text, "=", "--set", "KEY=VALUE")
        parts = [setting(part) for part in value.split(",")]
        fields["set"] = {**fields.get("set", {}), name: parts if len(parts) > 1 else parts[0]}
    if policies is not None:
        fields["policies"] = [part.strip() for part in policies.split(",") if part.strip()]
    if loads is not None:
        fields["loads"] = loads if loads == "auto" else _numbers(loads, float, "--loads")
    if seeds is not None:
        fields["seeds"] = _numbers(seeds, int, "--seeds")
    if scoring_cost is not None:
        fields["scoring_cost"] = scoring_cost
    for text in slo or ():
        for part in text.split():
            name, value = _pair(part, ":", "--slo", "ttft:MS")
            fields["slo"] = {**fields.get("slo", {}), name: value}
    if objective is not None:
        fields["objective"] = objective
    if subject_to:
        fields["subject_to"] = list(subject_to)
    return parse_spec(fields, str(file) if file is not None else "sweep")


def _pair(text: str, separator: str, option: str, form: str) -> tuple[str, str]:
    name, found, value = text.partition(separator)
    if not found or not name or not value:
        raise UserError(f"{option} {text!r}: write {form}")
    return name.strip(), value.strip()


def _numbers(text: str, kind: type, option: str) -> list[Any]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError as error:
        raise UserError(f"{option} {text!r}: write numbers separated by commas") from error
