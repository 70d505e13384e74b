"""Fuzzing: every parser of bytes from a network or a disk keeps its promise for any bytes.

The promise of a target: it returns, or raises one of its documented errors. It raises nothing else,
it ends, and its memory is at most a stated multiple of the input. Many targets promise more: what
was read has the bytes it was read from, or two ways of reading agree.

`make test` tries the seeds, which real encoders make, the kept inputs, and some thousands of
changed ones that are the same in every run. `make fuzz` goes on from there, for SECONDS of each
target, or of one TARGET. It installs atheris, which is libFuzzer for Python, and does without where
there is none. It adds an input for each new outcome to `corpus/`, and each that breaks a promise to
`findings/`: mend the parser, and commit the file with it.

A new parser needs a target: a row in a module of `targets/`. `test_catalogue.py` says which.

catalogue  The closed list of targets: every parser of bytes from a network or a disk has one
corpus     The inputs that are kept: one for each outcome of a target, and each that was a finding
found      What one process of a run found: an input for each outcome, and each broken promise
libfuzzer  The engine of atheris, libFuzzer for Python: guided by the lines that an input reaches
loop       Our own engine: changed inputs, of which those with a new outcome are changed further
mutate     Changed inputs, drawn from a seeded `Random`: flips, cuts, lengths, splices, words
run        `make fuzz`: every target in turn, for some seconds each; what was found is kept
target     What is fuzzed: a reader of bytes, the errors and the memory that it may take
targets/   Targets of the fuzz tests, by what they read
"""
