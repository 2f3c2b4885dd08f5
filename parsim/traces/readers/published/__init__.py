"""Traces that operators have published."""
