"""memray's package of this name: only its entry point."""

from heaptide.compat.memray.command_line import get_argument_parser as get_argument_parser
from heaptide.compat.memray.command_line import main as main
