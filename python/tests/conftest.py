"""What all tests share: examples that take no longer than a second are no failures."""

from hypothesis import settings

settings.register_profile("reshard", deadline=None, max_examples=60)
settings.load_profile("reshard")
