"""`python -m validate` in a checkout; elsewhere `parsim validate`."""

from runpy import run_module

run_module("parsim.validate", run_name="__main__")
