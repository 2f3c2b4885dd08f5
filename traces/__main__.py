"""`python -m traces` in a checkout; elsewhere `parsim traces`."""

from runpy import run_module

run_module("parsim.traces", run_name="__main__")
