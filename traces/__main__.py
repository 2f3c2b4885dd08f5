"""`python -m traces` in a checkout; elsewhere `parsim traces`."""

from parsim.cli.traces import app
from parsim.command import run_cli

run_cli(app, "parsim traces")
