"""The shared contract: formats, error table, limits, hashes, generated code."""

__version__ = "0.1.0"
"""Of all packages of this distribution: pyproject.toml reads it here."""
