"""The report of sessions and runs: `collecting` asks the store, `facts` says what is so, and one file a format says it.

The formats do not know each other, nor the store: all they get is the facts.
"""
