"""Whether a graph says what its source says: lifted back, and proved equal."""
