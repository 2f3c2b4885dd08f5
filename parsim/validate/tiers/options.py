"""What each tier is asked to do: the options of its command, and its arguments in a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from parsim.options import (
    Dummy,
    Emulate,
    Fields,
    Policies,
    Repeats,
    ReportFolder,
    Seed,
    TraceArgument,
    chosen_policy,
    emulated_taus,
    pairs,
)

if TYPE_CHECKING:
    from parsim.scheduler.policy import Policy


@dataclass(frozen=True)
class EngineRun:
    """Serve a trace on a real vLLM engine under each policy and compare it with the calibrated model."""

    trace: TraceArgument = "bundled"
    model: Annotated[
        str,
        Option(help="Folder or hub name of a model, or an architecture's name (random weights): tiny, ..."),
    ] = "tiny"
    dummy: Dummy = False
    policy: Policies = None
    requests: Annotated[int, Option(min=2, help="Requests of the trace, from its start.")] = 300
    repeats: Repeats = 3
    clock: Annotated[str, Option(help="wall, cpu (CPU engines: unmoved by other load), or both.")] = "both"
    load: Annotated[
        float | None,
        Option(help="Arrivals come this many times faster; chosen so that a queue forms if left out."),
    ] = None
    set_: Fields = None
    longest_output: Annotated[int | None, Option(min=1, help="Cut responses to this many tokens.")] = None
    emulate: Emulate = None
    seed: Seed = 0
    out: ReportFolder = None
    notes: tuple[str, ...] = ()
    """More lines for the report's assumptions."""

    @property
    def folder(self) -> Path:
        """Where the report goes."""
        return self.out or Path("reports") / f"engine-{Path(self.model).name}"

    @property
    def settings(self) -> Mapping[str, str]:
        """Engine fields to change."""
        return pairs("--set", self.set_ or [])

    @property
    def policies(self) -> list[str]:
        """Those that are run."""
        from parsim.sweep.spec import DEFAULT_POLICIES

        return self.policy or list(DEFAULT_POLICIES)

    @property
    def taus(self) -> Mapping[str, float]:
        """Kendall's tau-b of emulated predictors, by policy."""
        return emulated_taus(self.emulate or [], self.policies)


@dataclass(frozen=True)
class ServerRun:
    """Replay a trace against a vLLM server over HTTP and compare it with the model.

    Exits with 1 if requests were lost; what ended is kept and reported.
    """

    trace: TraceArgument = "bundled"
    url: Annotated[
        str | None,
        Option(help="A running server, without /v1; one is started for each policy if left out."),
    ] = None
    model: Annotated[
        str,
        Option(
            help="To start: folder, hub name or architecture. With --url: the served name; its first if empty."
        ),
    ] = ""
    policy: Annotated[
        list[str] | None,
        Option(help="Policy; repeatable when servers are started. With --url: what it runs."),
    ] = None
    requests: Annotated[int, Option(min=2, help="Requests of the trace, from its start.")] = 150
    load: Annotated[float, Option(min=0.0, help="Arrivals come this many times faster.")] = 1.0
    cancel_share: Annotated[
        float, Option(min=0.0, max=1.0, help="Share of requests cut off by the client.")
    ] = 0.0
    timeout_s: Annotated[
        float, Option(min=0.1, help="A request that has not ended by then is a timeout.")
    ] = 600.0
    engine: Annotated[
        str | None,
        Option(help="Engine file or preset of the model; fitted to half of the FCFS run if left out."),
    ] = None
    set_: Fields = None
    emulate: Emulate = None
    seed: Seed = 0
    out: ReportFolder = None

    @property
    def folder(self) -> Path:
        """Where the report goes."""
        return self.out or Path("reports") / "server"

    @property
    def address(self) -> str | None:
        """Of the running server, without `/v1`."""
        return self.url.rstrip("/").removesuffix("/v1") if self.url else None

    @property
    def settings(self) -> Mapping[str, str]:
        """Engine fields to change."""
        return pairs("--set", self.set_ or [])

    @cached_property
    def policies(self) -> tuple[Policy, ...]:
        """Those that are run."""
        return tuple(chosen_policy(name, None, None) for name in self.policy or ["fcfs"])

    @property
    def taus(self) -> Mapping[str, float]:
        """Kendall's tau-b of emulated predictors, by policy."""
        return emulated_taus(self.emulate or [], [one.name for one in self.policies])


@dataclass(frozen=True)
class EndToEnd:
    """Record a real model's natural lengths, train three predictors, serve the rest under five policies."""

    prompts: Annotated[
        Path | None,
        Argument(help="JSONL or Parquet with `prompt`, or text: at least --recorded of them."),
    ] = None
    lengths: Annotated[
        Path | None, Option(help="Responses that `validate record` wrote: nothing is recorded then.")
    ] = None
    model: Annotated[str, Option(help="Folder or hub name; `smollm2` is made from PyPI.")] = "smollm2"
    recorded: Annotated[int, Option(min=50, help="Prompts to record; 90% train, the rest is served.")] = 2000
    max_tokens: Annotated[int, Option(min=8, help="Responses are cut there.")] = 512
    temperature: Annotated[float, Option(min=0.0, help="Of recording and serving.")] = 0.7
    epochs: Annotated[int, Option(min=1, help="Of each predictor's training.")] = 3
    requests: Annotated[
        int | None, Option(min=4, help="Held-out prompts to serve under each policy; all by default.")
    ] = None
    repeats: Repeats = 3
    max_num_seqs: Annotated[int, Option(min=1, help="Requests that the engine runs at once.")] = 16
    clock: Annotated[Literal["cpu", "wall"], Option(help="cpu: the engine's CPU time; wall.")] = "cpu"
    seed: Seed = 0
    out: Annotated[Path, Option(help="Folder of all stages; an interrupted run in it is continued.")] = Path(
        "reports/end-to-end"
    )

    @property
    def folder(self) -> Path:
        """Of all stages."""
        return self.out
