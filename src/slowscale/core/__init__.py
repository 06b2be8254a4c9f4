"""The base of all rooms: errors, numbers as people read them, declared parameters, arrays, whole-file writes."""
