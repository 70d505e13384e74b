"""Known bugs, put back one at a time: the simulation is believed because it catches each.

alone      What random seeds find of a known bug with nobody's help: no script
catalogue  The closed list of known bugs: every one must be caught
hunt       Catching every mutant: its scripts first, then seeds. Prints and keeps the table
mutant     What a known bug is. `scripts` name scenarios made for it
mutation   `make mutation`: changed comparisons and guards that no test notices
operators  Small changes of a module's source: conditions that always or never hold
rewrite    Re-introducing a bug: a function of the product with one piece of its text replaced
core/      Known bugs of Raft, the log and the disk
data/      Known bugs of the state, calls, exports and decoding
delivery/  Known bugs of delivery: from stored to done
security/  Known bugs of who may do what
edges/     Known bugs at the edges: what is read from outside, and what is written for people
"""
