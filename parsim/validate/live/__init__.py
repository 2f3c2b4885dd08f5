"""The real engine and server: start, feed, record."""
