"""How far the values of a compiled graph are from the exact ones, at most."""
