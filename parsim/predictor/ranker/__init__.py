"""The ranker: encoder, linear head, objectives and training."""
