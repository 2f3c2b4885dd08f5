"""`python -m parsim.traces`."""

from parsim.errors import run_cli
from parsim.traces.cli import app

run_cli(app)
