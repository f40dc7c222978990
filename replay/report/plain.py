"""Takes out of a report's facts what a terminal, a spreadsheet or a browser would obey: names in a trace were written by strangers.

Pure. One place for all formats; each still escapes what is special in itself.
"""

import unicodedata
from typing import Any

_OBEYED = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Control, format and direction, surrogate and line separator characters."""


def plain(value: Any) -> Any:
    """The same value with every text in it, keys too, made plain: line ends and tabs stay, what is obeyed becomes U+FFFD."""
    match value:
        case str():
            return _text(value)
        case dict():
            return {plain(key): plain(each) for key, each in value.items()}
        case list():
            return [plain(each) for each in value]
        case tuple():
            return tuple(plain(each) for each in value)
        case _:
            return value


def _text(text: str) -> str:
    if text.isprintable():
        return str(text)
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in _OBEYED else "\ufffd" for c in text)
