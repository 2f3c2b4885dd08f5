"""The comparison of predictors: a grid of trainings, resumable, and the table made of it."""
