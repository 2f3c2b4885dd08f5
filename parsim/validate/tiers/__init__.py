"""The tiers of validation, each a run from settings to a comparison."""
