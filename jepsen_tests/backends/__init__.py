"""Clusters to test, and the handles by which they are hurt; one module for each kind."""
