"""A black-box chaos harness: it hurts a cluster and judges what the clients saw.

`python -m jepsen_tests --help` shows the commands. `docs/chaos.md` explains what the harness does.

    cli         the command line: `python -m jepsen_tests run|list|check|suite|mutants|results`
    errors      failures of the harness itself, and the errors that each operation may meet
    exit_codes  what the exit codes say: valid, invalid, unknown, failed
    signals     how a signal ends a run before its time
    terminal    a console that shows control characters instead of obeying them
    backends/   the clusters under test, and the handles by which faults hurt them
    checkers/   pure functions from a history to a judgement, each of one rule
    docker/     a docker engine, and the containers of deploy/ on it
    history/    what happened in a run: one JSON line for each event
    nemeses/    the faults, and the nemesis that carries a schedule of them out
    processes/  child processes, ports and threads of the harness
    report/     the page about a run: one self-contained HTML file
    run/        one run, from starting the cluster to the verdict
    suite/      suites of runs: their lists, their runner, their results
    trials/     known bugs put into real members: does the harness find them?
    workloads/  what the clients do, by name
"""
