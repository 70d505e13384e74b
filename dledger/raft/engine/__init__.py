"""PySyncObj 0.3.17 behind one module, and the journal that it writes to.

_pysyncobj  The quarantine around PySyncObj 0.3.17
journal     PySyncObj's Journal over the commit log
"""
