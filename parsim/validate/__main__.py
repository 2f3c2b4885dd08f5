"""`parsim.validate`."""

from parsim.command import run_cli
from parsim.validate.cli import app

run_cli(app, "parsim validate")
