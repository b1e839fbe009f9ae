"""Proof objects as files of Rocq: definitions, a statement, and a script that its kernel checks."""
