"""The version of the package, written into every artefact."""

__version__ = "0.1.0"
