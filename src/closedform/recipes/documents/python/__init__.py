"""Reads Python without running it: syntax, values of expressions, statements."""
