"""Simulated data with the published summaries of the paper's data sets (Section 6, Table summary-stats).

The records of the paper are not public, but the paper gives the least value, quartiles, mean and largest value of each
column, and the simulated columns have the same. Other properties of real data are simplified or missing; the notes on
each function list them. Use the tables to try the library, to compare mechanisms and to measure speed, but draw no
conclusions about businesses or farms from them.

Nothing here is confidential, so the records come from ordinary random numbers with a seed: the same arguments give the
same records.
"""

from slowscale.datasets.business_patterns import establishment_batches, establishments, write_establishments
from slowscale.datasets.cattle_survey import cattle

__all__ = ["cattle", "establishment_batches", "establishments", "write_establishments"]
