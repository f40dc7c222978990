"""llama.cpp: the longest common prefix to the token, the last token of a prompt always computed.

Pure. Sources and dates: docs/reference/reuse.md.
"""

from collections.abc import Iterator, Sequence

from replay.reuse import blocks
from replay.reuse.blocks import Limits
from replay.reuse.ideal import Prompt
from replay.reuse.prefix_tree import IdsOf

NAME = "llama_cpp"
BLOCK_TOKENS = 1


def predict(prompts: Sequence[Prompt], ids_of: IdsOf, limits: Limits) -> Iterator[int]:
    """Tokens of each prompt that the engine has in its cache. `prompts` in order of start."""
    return blocks.reused(prompts, ids_of, limits)
