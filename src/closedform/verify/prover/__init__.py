"""Whether a condition always holds: terms, tactics in a stated order, verdicts."""
