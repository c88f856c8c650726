"""The application behind ``attsvm fit-text``: attention over word vectors."""
