"""What would happen: scheduler, engine model, predictor, sweep and report.

>>> from parsim.traces import read_trace
>>> from parsim.engine import load_engine
>>> from parsim.scheduler.policy import parse_policy
>>> from parsim.simulation import simulate
>>> trace, engine = read_trace("trace.parquet"), load_engine("llama-3.1-8b-h100")  # doctest: +SKIP
>>> run = simulate(trace, engine, parse_policy("oracle"))  # doctest: +SKIP
"""
