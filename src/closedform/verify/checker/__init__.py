"""A second checker of proofs, small and without a search.

It reads a statement and a proof as data and replays each step. It imports none of the prover's
modules, neither SymPy nor z3: fractions, integers and ball arithmetic of python-flint.
"""
