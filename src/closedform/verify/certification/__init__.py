"""Proof objects: the search for proofs that the checker replays."""
