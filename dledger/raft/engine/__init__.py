"""PySyncObj 0.3.17 behind one module, and the journal that it writes to.

_pysyncobj  the only import of PySyncObj: a typed call for each thing that it decides
journal     PySyncObj's journal over the commit log
"""
