"""`python -m jepsen_tests`."""

from jepsen_tests.cli import main

main()
