"""What every room uses: errors, numbers as people read them, declared parameters, arrays, whole-file writes."""
