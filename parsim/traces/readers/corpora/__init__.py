"""Conversations and prompts: lengths, mostly without arrival times."""
