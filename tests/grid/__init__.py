"""The grid: combinations of what a release can be, each run whole, twice, on neighbouring records.

`cases` generates the combinations, `records` has the records, their neighbours and the exact sums, `noises` computes
losses from formulas, `outcomes` says what a run returns, and `checks` compares. Only `adapter` knows the names of the
library. No tests are in these modules.
"""
