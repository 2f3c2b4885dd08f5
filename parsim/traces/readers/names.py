"""What a column's name means, in whatever spelling: `ContextTokens`, `input_toks`, `usage.prompt_tokens`,
`createdMs`.

A name is cut into the words below, blind to case, spaces and underscores; a name with any other word in it
(`cached_tokens`, `max_output_tokens`, `time_to_first_token`) means something else and is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from parsim.errors import closest

UNITS = {
    "s": ("s", "sec", "secs", "second", "seconds"),
    "ms": ("ms", "msec", "msecs", "milli", "millis", "millisecond", "milliseconds"),
    "us": ("us", "usec", "usecs", "micro", "micros", "microsecond", "microseconds"),
    "ns": ("ns", "nsec", "nano", "nanos", "nanosecond", "nanoseconds"),
}
UNIT_OF = {word: unit for unit, words in UNITS.items() for word in words}

PROMPT = {"prompt", "input", "inputs", "context", "prefill", "query", "question", "request", "in", "isl"}
ANSWER = {
    *(
        "output",
        "outputs",
        "completion",
        "completions",
        "response",
        "reply",
        "answer",
        "generated",
        "generation",
    ),
    *("generate", "gen", "decode", "decoded", "out", "candidates", "predicted", "result", "osl"),
}
TOKENS = {"tokens", "token", "toks", "tok", "ntokens"}
LENGTHS = {"length", "len", "lens", "sequence", "seq"}
FILLERS = {"num", "number", "n", "of", "the", "count", "counts", "usage", "nr", "no", "total", "llm", "ai"}

CLOCKS = (
    {"arrival", "arrivals", "arrived", "arrive"},
    {
        "received",
        "receive",
        "submitted",
        "submit",
        "sent",
        "send",
        "issued",
        "enqueued",
        "queued",
        "requested",
    },
    {"start", "started", "begin", "began"},
    {"created", "create", "creation"},
    {"timestamp", "timestamps", "ts", "datetime"},
    {"time", "date", "epoch"},
)
"""Words that make a name an arrival time, the surest first."""
CLOCK_FILLERS = {
    "request",
    "req",
    "at",
    "time",
    "timestamp",
    "date",
    "ts",
    "utc",
    "unix",
    "epoch",
    "event",
    "log",
    "on",
}

EXACT = {
    "request_id": ("requestid", "reqid", "id", "uuid", "xrequestid", "callid", "rid", "requestuuid", "request"),
    "session_id": (
        *("sessionid", "conversationid", "conversationhash", "threadid", "dialogid", "dialogueid", "chatsessionid"),
        *("session", "conversation", "sessionuuid", "conversationuuid", "convid", "genaiconversationid"),
    ),
    "turn": ("turn", "turnindex", "roundindex", "turnid", "turnnumber", "turnno", "messageindex", "round"),
    "client_id": (
        *("clientid", "tenantid", "userid", "client", "tenant", "user", "customerid", "customer", "applicationid"),
        *("appid", "application", "app", "teamid", "team", "accountid", "account", "organizationid", "apikeyalias"),
        *("apikey", "username", "clientname", "logtype", "userapikeyalias"),
    ),
    "prompt": ("prompt", "prompttext", "textinput", "inputtext", "text", "question", "query", "instruction", "input"),
    "response": (
        *("response", "responsetext", "textoutput", "outputtext", "completion", "answer", "generatedtext", "output"),
        *("reply", "completiontext", "answertext", "generation"),
    ),
    "prefix_hashes": (
        *("prefixhashes", "hashids", "blockhashes", "prefixhashids", "blockhashids", "hashes", "prefixblockhashes"),
        *("prefixblockhashids", "promptblockhashes"),
    ),
    "hash_block_size": ("hashblocksize", "blocksize", "hashidblocksize", "blocktokens"),
    "failure": ("error", "errors", "errorcode", "errormsg", "errormessage", "exception", "status", "statuscode",
                "httpstatus", "httpstatuscode", "success", "wascancelled", "cancelled"),
    "model": ("model", "modelname", "modelid", "modelgroup"),
    "prompt_tokens": ("isl", "promptevalcount", "promptn"),
    "output_tokens": ("osl", "evalcount", "predictedn"),
    "arrival_s": ("t",),
}  # fmt: skip
"""Whole names, the surest first, without anything but letters and digits."""

TIMED = {
    "delay_s": ("delay", "thinktime", "interturndelay"),
    "end": ("end", "endtime", "endedat", "ended", "finish", "finishtime", "finishedat", "completed", "completedat",
            "requestend", "requestendtime", "endtimeunix", "endtimestamp", "lasttokentime", "completiontime"),
}  # fmt: skip
"""Names that a unit may follow."""


@dataclass(frozen=True, order=True)
class Meaning:
    """What a column is taken for: the less `rank`, the surer. `unit` where the name says one."""

    rank: int
    column: str
    unit: str | None = None


def plain(name: str) -> str:
    """The name without anything but letters and digits, in lower case."""
    return re.sub(r"[\W_]+", "", name).lower()


@lru_cache(maxsize=4096)
def meaning(name: str) -> Meaning | None:
    """What the column is taken for; None if nothing. A dotted name is judged by its last parts first, then whole."""
    parts = [part for part in name.split(".") if plain(part) not in ("value", "values", "attributes")]
    found = []
    for taken in range(1, min(len(parts), 3) + 1):
        one = _meaning(plain("".join(parts[-taken:])))
        if one is not None:
            found.append(Meaning(one.rank + 10 * (len(parts) - taken), one.column, one.unit))
    return min(found) if found else None


def _meaning(word: str) -> Meaning | None:
    for column, names in EXACT.items():
        if word in names:
            return Meaning(names.index(word), column)
    for column, names in TIMED.items():
        for unit, units in UNITS.items():
            if word in names or any(word == known + end for known in names for end in units):
                own = None if word in names else unit
                return Meaning(0, column, own)
    return _tokens(word) or _clock(word)


def _tokens(word: str) -> Meaning | None:
    words = segments(word, frozenset(PROMPT | ANSWER | TOKENS | LENGTHS | FILLERS))
    if words is None:
        return None
    kinds = [bool(words & known) for known in (PROMPT, ANSWER, TOKENS, LENGTHS)]
    if kinds[0] == kinds[1] or not (kinds[2] or kinds[3]):
        return None
    if not kinds[2] and words & {"request", "response", "in", "out", "result"}:
        return None  # an HTTP log's lengths are bytes
    rank = (0 if kinds[2] else 2) + ("total" in words)
    return Meaning(rank, "prompt_tokens" if kinds[0] else "output_tokens")


def _clock(word: str) -> Meaning | None:
    clocks = frozenset().union(*CLOCKS) | CLOCK_FILLERS
    for end in sorted(UNIT_OF, key=len, reverse=True):
        if word.endswith(end) and (words := segments(word[: -len(end)], clocks)):
            rank = _clock_rank(words)
            if rank is not None:
                return Meaning(rank, "arrival_s", UNIT_OF[end])
    words = segments(word, clocks)
    rank = _clock_rank(words) if words else None
    return Meaning(rank, "arrival_s") if rank is not None else None


def _clock_rank(words: frozenset[str]) -> int | None:
    rank = next((at for at, known in enumerate(CLOCKS) if words & known), None)
    if rank is None:
        return None
    if words == {"request", "time"}:
        return 9  # nginx's $request_time is how long it took
    return max(rank - ("request" in words or "req" in words), 0)


@lru_cache(maxsize=4096)
def segments(text: str, words: frozenset[str]) -> frozenset[str] | None:
    """The words that the whole text is made of, longest first; None if it is not."""
    if not text:
        return frozenset()
    for size in range(min(len(text), 12), 0, -1):
        if text[:size] in words and (rest := segments(text[size:], words)) is not None:
            return frozenset((text[:size], *rest))
    return None


def find(name: str, names: Sequence[str]) -> str | None:
    """The column that a user or a format calls `name`: the same, else the same but for case, spaces and underscores,
    else the end of a dotted one."""
    if name in names:
        return name
    wanted = plain(name)
    same = [one for one in names if plain(one) == wanted]
    if same:
        return same[0]
    inner = [one for one in names if plain(one.rsplit(".", 1)[-1]) == wanted]
    return inner[0] if len(inner) == 1 else None


WANTED = {
    "arrival_s": ("when requests arrive", frozenset().union(*CLOCKS[:5]) | {"time", "date", "clock", "when"}),
    "prompt_tokens": ("tokens of the prompt", frozenset(PROMPT)),
    "output_tokens": ("tokens of the answer", frozenset(ANSWER) | {"new", "produced", "tgt", "target"}),
}
"""Column -> what it is in words, and the words that hint at it."""


def nearest(column: str, names: Iterable[str]) -> str | None:
    """The column most likely meant for `column`: the one whose words hint at it, else the one of like letters."""
    hints = WANTED[column][1] if column in WANTED else frozenset()
    others = frozenset().union(*(words for other, (_, words) in WANTED.items() if other != column)) - hints
    best, top = None, 0
    for name in names:
        words = _loose(name)
        measured = column == "arrival_s" or bool(words & (TOKENS | LENGTHS | {"count", "size"}))
        score = 2 * len(words & hints) + measured - 2 * len(words & others)
        if words & hints and score > top:
            best, top = name, score
    return best or closest(column, [name for name in names if meaning(name) is None])


def _loose(name: str) -> frozenset[str]:
    """The words of a name as its capitals and signs part it."""
    return frozenset(word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name))
