"""The replicated commands.

codec  The closed list of replicated commands, and their codec
"""
