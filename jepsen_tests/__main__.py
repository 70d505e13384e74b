"""`python -m jepsen_tests`."""

import sys

from jepsen_tests.cli import main

sys.exit(main())
