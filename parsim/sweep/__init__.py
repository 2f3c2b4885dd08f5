"""Many runs: a sweep file, its grid of points, their execution, and the tables that a report is written from."""
