"""The command line ``closedform``: list, show, plot, export, run, verify, audit, one file each."""

from __future__ import annotations

from closedform.cli.app import app, main

__all__ = ["app", "main"]
