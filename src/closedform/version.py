"""The version of the package, written into every artefact."""

__version__ = "0.2.0"
