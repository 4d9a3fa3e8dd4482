"""The worked examples can be imported as a reader would run them."""

import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[4] / "examples" / "embedding"
sys.path.insert(0, str(EXAMPLES))
