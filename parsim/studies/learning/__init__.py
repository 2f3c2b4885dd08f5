"""What the learner ranks like, and that scores and clients do no harm: the figures of docs/learning.md."""
