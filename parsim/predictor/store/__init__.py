"""Trained predictors on disk: card, checkpoint, and how one is fitted and kept."""
