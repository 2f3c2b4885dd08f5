"""Per-request recordings of real runs, read."""
