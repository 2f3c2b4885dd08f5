"""Will it help me, what do I set, who pays, how sure are you?"""

from __future__ import annotations

from parsim.report.advice import is_default, is_trying
from parsim.report.page import Prose, Section, Verdict, figure
from parsim.report.phrases import display, seconds_words
from parsim.report.verdict import KINDS, judge, mean_of
from parsim.report.words import headline, sentences
from parsim.sweep.configuration import ENGINE_COLUMNS, varied
from parsim.sweep.results import Results
from parsim.sweep.search import LIMITS


def section(results: Results) -> Section:
    """The verdict box and what to do next."""
    facts = results.facts
    j = judge(results)
    row = facts["decision"]["row"]
    guard = row["starvation_threshold_s"]
    settings = [
        ("recommended: policy", display(results, row["policy"])),
        ("starvation threshold", "none" if guard is None else f"{guard:g} s"),
        *((name, setting_words(row[name])) for name in dict.fromkeys((*LIMITS, *settings_shown(results)))),
        ("preemption victim", row["victim"]),
    ]
    if facts["decision"]["violated"]:
        settings.append(("constraints not met", "; ".join(facts["decision"]["violated"])))
    box = Verdict(
        kind=KINDS[j.answer],
        headline=headline(j, results),
        sentences=[s for s in sentences(j, results) if s],
        facts=[
            (
                "FCFS, mean latency per token",
                seconds_words(mean_of(results, "fcfs", j.load, "mean_per_token_latency_ms") / 1e3),
            ),
            *([] if is_trying(results) else settings),
        ],
        command=facts["command"],
        command_title="vLLM's defaults, as a command"
        if is_trying(results) or is_default(results)
        else "Recommended, as a command",
    )
    trace, engine = facts["trace"], facts["engine"]
    setting = Prose(
        [
            f"Simulated: {trace['requests']:,} requests of {trace['name']!r} "
            f"(mean {figure(trace['mean_prompt_tokens'])} prompt and {figure(trace['mean_output_tokens'])} response "
            f"tokens) on {engine['name']}: {engine['num_gpu_blocks']:,} KV blocks of {engine['block_size']} tokens, "
            f"step time {engine['step_time']['source']}. "
            f"This is a model: parsim validate {'reports/' + facts['name']}/choice.json checks it on a real engine."
        ],
        small=True,
    )
    return Section("", [box, setting], anchor="answer")


def settings_shown(results: Results) -> list[str]:
    """The engine fields that the grid varies, and those in which the choice differs from its first engine."""
    main, row = results.select("main"), results.facts["decision"]["row"]
    changed = [name for name in ENGINE_COLUMNS if name in row and row[name] != main[name][0]]
    return list(dict.fromkeys((*varied(main), *changed)))


def setting_words(value: object) -> str:
    """A setting's value as a person writes it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) else str(value)
