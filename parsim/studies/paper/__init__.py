"""The claims of arXiv 2510.03243, tried on public data."""
