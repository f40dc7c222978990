"""When each token of an answer is due: a fixed part, prefill of what is not cached, one step a token. Pure.

Requests do not slow each other: what is measured is the cache's work, not a scheduler's. That is said in docs/guide/simulate.md.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """TTFT = `fixed_ns` + uncached prompt tokens at `prefill_tps`; every further token takes 1 / `decode_tps`."""

    fixed_ns: int
    prefill_tps: float
    decode_tps: float

    def first_token_ns(self, uncached_tokens: int) -> int:
        """From the whole request to the first token, ns."""
        return self.fixed_ns + round(uncached_tokens * 1e9 / self.prefill_tps)

    def token_ns(self, uncached_tokens: int, number: int) -> int:
        """From the whole request to the token with this number, counted from 0, ns. Absolute, so that lateness does not add up."""
        return self.first_token_ns(uncached_tokens) + round(number * 1e9 / self.decode_tps)
