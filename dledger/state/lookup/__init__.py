"""Indexes of single records: by key and by message id (S52).

entries      Entries of the key index as bytes: making, sorting, searching them
gone         Which batches compaction has left nothing of
key_index    The key index: from a key's hash to the batches that hold it (S52)
message_ids  The message id index: from producer id and running number to a place in a queue
runs         The directory of a topic's key index
"""
