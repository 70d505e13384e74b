"""`python -m dledger_broker.cli`: the same as the `dledger` command."""

import sys

from dledger_broker.cli import main

sys.exit(main())
