"""The replicated commands.

codec     The fields of commands as bytes and as text, by the type of each field
command   What a command declares: number, fields, result, handler
old_forms  Commands in the form in which an older dledger wrote them: read, never written
registry  The closed list of commands: payload to command and back, and its line in logs
"""
