"""Serving: the HTTP server of heaptide serve, and the control API mounted in other web servers."""
