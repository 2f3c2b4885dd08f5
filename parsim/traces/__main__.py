"""`parsim.traces`."""

from parsim.command import run_cli
from parsim.traces.cli import app

run_cli(app, "parsim traces")
