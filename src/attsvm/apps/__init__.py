"""Complete applications built on the library."""
