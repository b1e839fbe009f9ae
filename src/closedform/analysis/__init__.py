"""Questions about recipes: compare, recover, resume, solve, write and watch them."""
