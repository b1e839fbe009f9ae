"""Facts about an expression before it is lowered: its domain, and the interval of its values."""
