"""The kernel language and its numbers, as the specification states them, on every target."""
