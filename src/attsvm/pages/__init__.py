"""Pages of results: one model of a page, its three views, and one file for each kind of result."""
