"""memray's package of this name, with its entry points only."""

from heaptide.compat.memray.command_line import get_argument_parser as get_argument_parser
from heaptide.compat.memray.command_line import main as main
