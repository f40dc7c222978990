"""A tree of token sequences that finds the longest prefix seen before; each path of elements remembers where in the tree it ends.

Pure. Token ids travel as bytes of a fixed width, so that comparing is memcmp; a path is a tuple of names of which each stands for all of
the prompt up to there, so that what was compared once is found by its name. It does not know time, models or rules.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

type Ids = array[int]
type IdsOf = Callable[[int], Ids]
"""Token ids of the last element of the path with this name."""

WIDTH = array("I").itemsize


@dataclass(slots=True, eq=False)
class _Node:
    """The tokens between two branchings. `start`: how many tokens stand before them."""

    start: int
    tokens: bytes
    above: "_Node | None" = None
    below: dict[bytes, "_Node"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Place:
    """A point in the tree: `depth` tokens from the root, inside the edge of `node` or at its end, or above it since the edge was cut."""

    node: _Node
    depth: int


class PrefixTree:
    """Every sequence that was put in, by its tokens. Finding a path costs what is new in it, not its length."""

    def __init__(self, ids_of: IdsOf) -> None:
        self._ids_of = ids_of
        self._root = _Place(_Node(0, b""), 0)
        self._places: dict[int, _Place] = {}

    def shared(self, path: Sequence[int]) -> int:
        """How many leading tokens of the path are in the tree."""
        known = self._known(path)
        place = self._places[path[known - 1]] if known else self._root
        for name in path[known:]:
            tokens = self._ids_of(name).tobytes()
            wanted = place.depth + len(tokens) // WIDTH
            place = _descend(place, tokens)
            if place.depth < wanted:
                break
        return place.depth

    def put(self, path: Sequence[int]) -> None:
        """Adds a path's tokens."""
        known = self._known(path)
        place = self._places[path[known - 1]] if known else self._root
        for name in path[known:]:
            place = _grow(place, self._ids_of(name).tobytes())
            self._places[name] = place

    def put_after(self, path: Sequence[int], ids: Ids) -> None:
        """Adds tokens that follow a path, as an answer follows its prompt."""
        self.put(path)
        _grow(self._places[path[-1]] if path else self._root, ids.tobytes())

    def _known(self, path: Sequence[int]) -> int:
        """How many names of the path have their place: always the leading ones, so the border is found by halving."""
        low, high = 0, len(path)
        while low < high:
            middle = (low + high + 1) // 2
            if path[middle - 1] in self._places:
                low = middle
            else:
                high = middle - 1
        return low


def _now(place: _Place) -> _Node:
    """The node in whose edge a place lies since edges above it were cut."""
    node = place.node
    while node.above is not None and place.depth <= node.start:
        node = node.above
    return node


def _descend(place: _Place, tokens: bytes) -> _Place:
    """As far down from a place as the tokens lead."""
    node, depth, done = _now(place), place.depth, 0
    while done < len(tokens):
        inside = (depth - node.start) * WIDTH
        if inside == len(node.tokens):
            following = node.below.get(tokens[done : done + WIDTH])
            if following is None:
                break
            node, inside = following, 0
        same = common_bytes(node.tokens[inside : inside + len(tokens) - done], tokens[done:])
        done += same
        depth += same // WIDTH
        if same < min(len(node.tokens) - inside, len(tokens) - done + same):
            break
    return _Place(node, depth)


def _grow(place: _Place, tokens: bytes) -> _Place:
    """The place at the end of the tokens, which are added where they are not there yet."""
    reached = _descend(place, tokens)
    rest = tokens[(reached.depth - place.depth) * WIDTH :]
    if not rest:
        return reached
    branching = _cut(reached)
    leaf = _Node(reached.depth, rest, branching)
    branching.below[rest[:WIDTH]] = leaf
    return _Place(leaf, reached.depth + len(rest) // WIDTH)


def _cut(place: _Place) -> _Node:
    """The node that ends at a place, made by cutting an edge in two where it must be."""
    node, inside = place.node, (place.depth - place.node.start) * WIDTH
    if inside == len(node.tokens):
        return node
    assert node.above is not None
    upper = _Node(node.start, node.tokens[:inside], node.above, {node.tokens[inside : inside + WIDTH]: node})
    node.above.below[upper.tokens[:WIDTH]] = upper
    node.above, node.start, node.tokens = upper, place.depth, node.tokens[inside:]
    return upper


def common_bytes(a: bytes, b: bytes) -> int:
    """Length of the longest common prefix, in bytes of whole tokens."""
    low, high = 0, min(len(a), len(b)) // WIDTH
    if a[: high * WIDTH] == b[: high * WIDTH]:
        return high * WIDTH
    while low < high:
        middle = (low + high + 1) // 2
        if a[low * WIDTH : middle * WIDTH] == b[low * WIDTH : middle * WIDTH]:
            low = middle
        else:
            high = middle - 1
    return low * WIDTH


def shared_by(a: Sequence[int], b: Sequence[int], ids_of: IdsOf) -> int:
    """Leading tokens that two paths share."""
    equal = next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    head = sum(len(ids_of(name)) for name in a[:equal])
    rest_a, rest_b = (b"".join(ids_of(name).tobytes() for name in path[equal:]) for path in (a, b))
    return head + common_bytes(rest_a, rest_b) // WIDTH
