"""Settings of the tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

# Tests measure compilers, not what an earlier run left on disk; and they check every pass.
os.environ.setdefault("TACK_CACHE", "off")
os.environ.setdefault("TACK_VERIFY", "1")

settings.load_profile("ci")
