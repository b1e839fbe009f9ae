"""The types of the generated classes; the modules exist for type checkers only."""
