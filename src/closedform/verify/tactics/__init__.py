"""Whether a condition always holds: the prover and its tactics, in a stated order."""
