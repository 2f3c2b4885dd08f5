"""Azure LLM inference traces, 2023, 2024 and multimodal: one CSV row a request.

`TIMESTAMP,ContextTokens,GeneratedTokens`. The 2023 files write seven fractional digits
(`2023-11-16 18:15:46.6805900`); the 2024 files add an offset from UTC (`2024-05-10 00:00:00.009930+00:00`)
and leave the fraction out when it is zero; the multimodal ones add `NumImages`. No text, no hashes.
"""

from __future__ import annotations

from parsim.traces.readers.format import Format

FORMAT = Format(
    name="azure",
    title="Azure LLM inference traces, 2023, 2024, multimodal",
    origin="Azure's LLM inference traces (github.com/Azure/AzurePublicDataset) or a file in their columns",
    signature=("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    fields={
        "arrival_s": ("TIMESTAMP",),
        "prompt_tokens": ("ContextTokens",),
        "output_tokens": ("GeneratedTokens",),
    },
    licence="CC-BY-4.0 where it is Azure's own",
)
