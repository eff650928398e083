"""``python -m mprof``."""

import sys

from . import main

sys.exit(main())  # type: ignore[func-returns-value]
