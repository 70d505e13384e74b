"""For every test: property tests have no time limit per example, machines are slow at times."""

from hypothesis import settings

settings.register_profile("dledger", deadline=None, print_blob=True)
settings.load_profile("dledger")
