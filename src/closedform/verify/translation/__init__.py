"""Whether a graph computes its source: read back as terms, and proved equal."""
