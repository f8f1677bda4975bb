"""The Metal backend."""
