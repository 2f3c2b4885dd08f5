"""Scores for traces and for a live scheduler, and what they cost."""
