"""Who sent this: sessions, threads, kinds, retries and dependencies of recorded calls, with the evidence. Pure."""

from tracer.identity.memory import Reply, Sighting, Spawn, Trail
from tracer.identity.placing import Identity

__all__ = ["Identity", "Reply", "Sighting", "Spawn", "Trail"]
