"""Simulated data with the published summaries of the paper's data sets (Section 6, Table summary-stats).

The records of the paper are not public. What the paper says of each column are its least value, quartiles, mean and
largest value. The simulated columns have the same. Nothing here is confidential, so the records come from ordinary
random numbers with a seed: the same arguments give the same records.
"""

from slowscale.datasets.business_patterns import establishment_batches, establishments, write_establishments
from slowscale.datasets.cattle_survey import cattle

__all__ = ["cattle", "establishment_batches", "establishments", "write_establishments"]
