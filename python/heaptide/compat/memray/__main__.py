"""``python -m memray``: memray's commands."""

import sys

from heaptide.compat.memray.command_line import main

sys.exit(main())
