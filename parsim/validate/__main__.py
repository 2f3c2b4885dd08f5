"""`python -m parsim.validate`."""

from parsim.errors import run_cli
from parsim.validate.cli import app

run_cli(app)
