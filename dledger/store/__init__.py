"""The ordered key-value store behind the state: in memory, over LMDB on disk.

lmdb_check   Whether a state store may be opened: checked by a process of its own
lmdb_errors  Which errors of LMDB and the system are damage, and which leave the store sound
lmdb_mark    The mark beside the data file: a commit that the data file must at least hold
lmdb_rows    LMDB's data file read without LMDB, every field of its pages checked
lmdb_store   The state store on disk: saving sealed rows and totals, reading them
sealed       Seals: how a saved row, and all rows together, show that nothing changed them
store        The state store: its in-memory tail over a base
"""
