"""The backend for Intel GPUs: Level Zero, through its loader."""
