"""Targets of the fuzz tests, by what they read.

batches   Targets: record batches, their records, columns and pieces
calls     Targets: what callers send to a member or a name server, and its errors on the way back
entries   Targets: entry frames, segments, whole data folders of a log
exports   Targets: what an export keeps in files
frames    Targets: frames of the append and fetch streams
logins    Targets: how strangers begin TLS, and the messages of a login, as both sides read them
peers     Targets: what members of a group say to each other
reseal    Checksums of our formats, made right again after a change
small     Targets: small files of a data folder, dumps and manifests
state     Targets: replicated commands, rows of the state, LMDB's pages
texts     Targets: texts that people write: settings, patterns, names, times
"""
