"""When tokens are due."""

from replay.simulator.timing import Timing


def test_first_token_is_the_fixed_part_and_the_uncached_prompt() -> None:
    """a + b * uncached, and each further token c later, from one zero."""
    timing = Timing(fixed_ns=10_000_000, prefill_tps=1000, decode_tps=50)
    assert timing.first_token_ns(0) == 10_000_000
    assert timing.first_token_ns(250) == 260_000_000
    assert [timing.token_ns(250, number) for number in (0, 1, 5)] == [260_000_000, 280_000_000, 360_000_000]


def test_rounding_does_not_add_up() -> None:
    """The 3000th token at 3 tokens a second is due to the nanosecond after 1000 seconds."""
    assert Timing(fixed_ns=0, prefill_tps=1, decode_tps=3).token_ns(0, 3000) == 1000 * 10**9
