"""The decoding sequences, kept as totals: none is touched between its first and its last token."""

from __future__ import annotations

from parsim.engine.request import EngineRequest


class Decoding:
    """Sequences that decode one token a step.

    A sequence that caught up in step j with c tokens needs a new block in every step s with
    (c + s - j - 1) % block_size == 0, so a counter per residue of the step number gives the blocks that a step
    needs; its last step is known when it joins, so a bucket per step gives those that end.

    Attributes:
        count: sequences of the next step.
        kv_tokens: tokens that they have computed.
        due: sequences that need a new block, by residue of the step number.
        ending: sequences by their last step (stale entries have another `last_step`).
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.count = 0
        self.kv_tokens = 0
        self.due = [0] * block_size
        self.ending: dict[int, list[EngineRequest]] = {}

    def join(self, request: EngineRequest, step: int) -> None:
        """The request caught up in `step`, which samples a token; it decodes from the next step on."""
        request.joined = step
        last = request.last_step = step + request.output_tokens - request.generated - 1
        bucket = self.ending.get(last)
        if bucket is None:
            self.ending[last] = [request]
        else:
            bucket.append(request)
        if last > step or request.overruns:
            computed = request.prompt_tokens + request.generated
            request.decoding = True
            self.count += 1
            self.kv_tokens += computed
            residue = request.residue = (step + 1 - computed) % self.block_size
            self.due[residue] += 1

    def leave(self, request: EngineRequest, step: int) -> None:
        """The request takes no part in `step`, the next to be formed, nor later."""
        if request.decoding:
            request.decoding = False
            self.count -= 1
            self.kv_tokens -= request.prompt_tokens + request.generated + step - 1 - request.joined
            self.due[request.residue] -= 1

    def retire(self, last: int) -> int:
        """Those that sampled their last token in step `last` take no part in the next, except rule 8's: how many."""
        surplus = 0
        for request in self.ending.get(last, ()):
            if request.last_step == last:
                if request.overruns:
                    surplus += request.decoding
                else:
                    self.leave(request, last + 1)
        return surplus

    def pause(self, request: EngineRequest, step: int) -> None:
        """The request is passed over in `step`, which is being formed: all it does later comes a step later."""
        if request.idle_to != step - 1:
            request.idle_from = step
        request.idle_to = step
        request.joined += 1
        if request.last_step >= step:  # and not one that has sampled its last token (rule 8)
            request.last_step += 1
            self.ending.setdefault(request.last_step, []).append(request)
        self.due[request.residue] -= 1
        request.residue = (request.residue + 1) % self.block_size
        self.due[request.residue] += 1
