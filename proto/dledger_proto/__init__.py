"""The shared contract: formats, error table, limits, hashes, generated code."""
