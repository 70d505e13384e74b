"""One Raft group: the engine at its seams, the gate, formation, transport."""
