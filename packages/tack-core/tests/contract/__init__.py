"""The contract of backends: one suite that each of them passes, and what must be there of each."""
