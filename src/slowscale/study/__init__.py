"""The study: the paper's experiments. Uses the public face of the library only."""
