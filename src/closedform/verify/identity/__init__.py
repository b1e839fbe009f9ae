"""Whether two terms are equal, without a solver: normal forms, congruence, equality on runs."""
