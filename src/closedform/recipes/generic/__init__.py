"""Configs of no known framework, read by the names of their keys: ``framework="generic"``.

It is not among ``FRAMEWORKS``: nothing is recognized as it, and it has to be asked for.
"""
