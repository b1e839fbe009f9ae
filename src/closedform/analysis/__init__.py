"""Questions about recipes: compare, recover, resume, solve, write, watch and audit them."""
