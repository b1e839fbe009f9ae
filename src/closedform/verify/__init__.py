"""Proofs, refutations and certificates for schedules, update rules and their graphs."""
