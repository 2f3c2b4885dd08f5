"""What did not happen but could: drawn arrivals and lengths, joined and redrawn traces."""
