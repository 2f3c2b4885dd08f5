"""The commands of `parsim validate`, one a file."""
