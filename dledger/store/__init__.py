"""The ordered key-value store behind the state: in memory, over LMDB on disk.

lmdb_check   Whether a state store may be opened
lmdb_errors  What an error of the state store means
lmdb_mark    The mark beside the data file: up to which commit this store is known to have come
lmdb_rows    LMDB's data file read without LMDB
lmdb_store   The state store on disk: LMDB under the shared in-memory tail
sealed       Seals: how a saved row, and the whole of them, show that they are what was written
store        The state store
"""
