"""``python -m memory_profiler``."""

import sys

from .program import main

sys.exit(main())
