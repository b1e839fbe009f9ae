"""The search for proofs, which the checker replays: see ``refutation.find_proof``."""
