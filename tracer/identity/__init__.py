"""Who sent this: sessions, threads, kinds, retries and dependencies of recorded calls, with the evidence. Pure."""

from tracer.identity.decided import Cut, Merge, Verdict
from tracer.identity.memory import Reply, Sighting, Spawn, Trail
from tracer.identity.placing import Identity

__all__ = ["Cut", "Identity", "Merge", "Reply", "Sighting", "Spawn", "Trail", "Verdict"]
