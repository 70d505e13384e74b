"""The record batch `DLB1`: the unit of work, from producer to reader (D5).

codec           The record batch `DLB1`: layout, encode, check
compression     Compression of batch bodies
cutting         Cutting records out of a batch: a smaller batch, in the same format
describing      Encoding tag, keys, properties and times of records
extensions      Extensions of a batch header: the delivery time
header          Records, and the fixed part of a batch header
properties      The properties of one record
property_check  The check of all properties of a batch before it is stored
view            Reading a batch: columns, records, bodies
"""
