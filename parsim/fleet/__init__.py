"""Several engines behind a router, in one virtual time."""

from parsim.fleet.run import FleetOutcome, run_fleet

__all__ = ["FleetOutcome", "run_fleet"]
