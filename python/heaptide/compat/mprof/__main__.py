"""``python -m mprof``."""

import os
import sys

from . import main

# The name in messages, which is that of mprof's file.
if os.path.basename(sys.argv[0]) == "__main__.py":
    sys.argv[0] = "mprof.py"
sys.exit(main())  # type: ignore[func-returns-value]
