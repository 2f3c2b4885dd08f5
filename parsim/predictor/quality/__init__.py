"""How well scores rank: measures, baselines, evaluation."""
