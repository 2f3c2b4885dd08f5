"""`python -m validate`."""

from traces.errors import run_cli
from validate.cli import app

if __name__ == "__main__":
    run_cli(app)
