"""The replicated commands.

codec     The fields of commands as bytes and as text, by the type of each field
command   What a command declares: number, fields, result, handler
registry  The closed list of commands: payload to command and back, and its line in logs
"""
