"""``python -m memray``: Heaptide's command, which has memray's names and options."""

import sys

from heaptide.__main__ import main

sys.exit(main())
