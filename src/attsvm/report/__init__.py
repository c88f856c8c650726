"""Pages for people: shared templates and style, and one folder a kind of page."""
