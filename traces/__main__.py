"""`python -m traces`."""

from traces.cli import app
from traces.errors import run_cli

if __name__ == "__main__":
    run_cli(app)
