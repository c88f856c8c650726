"""The application behind ``attsvm experiment``: transformers trained by several optimisers."""
