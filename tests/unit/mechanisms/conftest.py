"""The toy mechanism is imported by a process of its own: here it would stay in the registry."""

collect_ignore = ["toy.py"]
