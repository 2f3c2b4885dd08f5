"""Prompt text -> score: which response will be longer, told from the prompt alone.

A small encoder and a linear head, trained on recorded response lengths by one of three objectives (pairwise:
PARS; pointwise; listwise), measured by Kendall's tau_b on prompts that training never saw, shipped ready to
use, and run beside vLLM's scheduler. A higher score means a longer expected response; queues sort by it in
ascending order.

Modules, in the order in which data pass through them: `corpus` (read lengths), `split` (keep prompts apart),
`recipe` (every training choice), `encoder`, `model`, `objective`, `pairs`, `train`, `checkpoint`, `evaluate`,
`baselines`, `compare`, `score`, `scorer`. Importing this package loads neither torch nor transformers.
"""
