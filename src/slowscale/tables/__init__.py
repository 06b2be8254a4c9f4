"""Tables: where the records are, the public keys, and exact sums. Knows engines, knows nothing of noise."""
