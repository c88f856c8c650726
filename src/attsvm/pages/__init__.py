"""HTML pages of results: shared templates and style, and one folder per kind of page."""
