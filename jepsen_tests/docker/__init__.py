"""A docker engine and the containers of deploy/ on it."""
