"""memray's module of this name."""

from heaptide.compat.memray.notebook import load_ipython_extension as load_ipython_extension
