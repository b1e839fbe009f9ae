"""Passes: frozen dataclasses that map a graph to a graph of the same meaning."""
