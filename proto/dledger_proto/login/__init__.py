"""Logging in without sending a secret: SCRAM-SHA-256 (RFC 5802, RFC 7677).

blocking     Tokens of blocking channels
credentials  Which user somebody is, its secret; the steps of a login
derivation   The keys that follow from a secret
scram        The messages of a login, as the client and as the member see them
tokens       Tokens of asyncio channels
"""
