"""A black-box chaos harness: workloads under faults, judged from a history of what clients saw.

`python -m jepsen_tests --help`; what it checks and how to use it: `docs/chaos.md`.

    cli         The command line: `python -m jepsen_tests run|list|check|suite|mutants|results`
    errors      How a run can go wrong, apart from what it finds
    exit_codes  How a run ends before its time, and what the exit codes say
    terminal    A console that prints text of histories and tools without obeying it
    backends/   Clusters to test, and the handles by which they are hurt
    checkers/   Checkers: pure functions from a history to judgements, each of one rule
    docker/     A docker engine and the containers of deploy/ on it
    history/    The history of a run: its events, and what each line may hold
    nemeses/    The faults by name
    processes/  Processes, ports and threads of the harness
    report/     The page about a run: one self-contained HTML file
    run/        One run: cluster, workload, faults, end, verdict
    suite/      Suites of runs: plans, running them, what they covered, results
    trials/     Trials of known bugs: does the harness see them?
    workloads/  The workloads by name
"""

import os

# Or a child can hang or crash in gRPC's fork handlers between fork and exec.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
