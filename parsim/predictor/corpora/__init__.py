"""Prompts with response lengths to learn from."""
