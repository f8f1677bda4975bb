"""Mutated kernel sources: accepted, or rejected with a position; never a crash, never a hang.

Cases are compiled for this machine (``tack.inspect(..., mode="asm")``) but not run: a mutated
index may be anything, and out-of-range indexes are the caller's duty.
"""
