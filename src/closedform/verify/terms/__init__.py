"""Terms of the prover.

``tree`` has the data structure, ``build`` the constructors, ``sympy_io`` reading and writing, and
``from_graph`` the terms of a compiled graph; the other modules work on terms.
"""
