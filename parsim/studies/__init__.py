"""Research: the paper's claims, the comparison of predictors, how what is shipped was made.

Nothing of the product needs it.
"""
