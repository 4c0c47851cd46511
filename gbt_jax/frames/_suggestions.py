"""Messages for names that do not exist."""

import difflib
from collections.abc import Iterable
from typing import Any

_LISTED = 30


def unknown_message(kind: str, name: Any, known: Iterable[Any], *, brief: bool = False) -> str:
    """`unknown preset 'arenas'; did you mean 'arena'? known: …`

    If `brief`, known names are listed only if none is similar.
    """
    names = [str(label) for label in known]
    folded = {label.casefold(): label for label in reversed(names)}
    close = difflib.get_close_matches(str(name).casefold(), folded, n=1)
    suggestion = f" did you mean {folded[close[0]]!r}?" if close else ""
    if brief and close:
        return f"unknown {kind} {name!r};{suggestion}"
    more = ", …" if len(names) > _LISTED else ""
    listed = ", ".join(map(repr, names[:_LISTED]))
    return f"unknown {kind} {name!r};{suggestion} known: {listed}{more}"
