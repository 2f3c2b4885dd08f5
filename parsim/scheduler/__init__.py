"""The PARS scheduler: order, starvation guard, victim rule and ranked queue.

Standard library only. The simulated engine and the real vLLM run this code; `vllm.py` is the one file that
imports vLLM.
"""
