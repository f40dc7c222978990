"""Holds for every test: no example of a property has a time limit, since the machine may be busy; `timeout` bounds each test as a whole."""

from hypothesis import settings

settings.register_profile("playhead", deadline=None)
settings.load_profile("playhead")
