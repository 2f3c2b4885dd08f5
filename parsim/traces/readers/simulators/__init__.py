"""Workloads and recordings in the layouts of other simulators."""
