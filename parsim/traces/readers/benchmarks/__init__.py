"""Results of benchmark clients: what they sent, and when."""
