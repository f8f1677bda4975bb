"""Random programs: compiled, compiled and threaded, and in plain Python, with equal results."""
