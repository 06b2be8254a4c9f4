"""Tables: the sources of the records, the public keys and exact sums. This room knows engines, but no noise."""
