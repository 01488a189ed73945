"""A drawing of the rooms of the package and what they import, in Mermaid, which GitHub shows as a picture.

An arrow leads from a room to one that it imports; it is left out where other arrows lead there too. Rooms that import
each other stand in one box. The drawing follows from the files alone, so that a test can say whether it is true.
"""

import re
from pathlib import Path

from leakage.pipeline import tree

_PLACE = re.compile(r"(<!-- map: made by `make map` -->\n).*?(<!-- end of map -->)", re.DOTALL)


def drawing(package: Path) -> str:
    """The rooms of `package` as a flow chart, top floor first."""
    rooms = tree.rooms(tree.imports(package))
    below = {room: tree.reach(rooms, [room]) for room in rooms}
    boxes = {room: tuple(sorted({room, *(other for other in below[room] if room in below[other])})) for room in rooms}
    arrows = set()
    for room, targets in rooms.items():
        outside = {target for target in targets if boxes[target] != boxes[room]}
        direct = {
            target for target in outside if not any(target in below[other] for other in outside - {*boxes[target]})
        }
        arrows |= {(boxes[room], boxes[target]) for target in direct}
    # The first room of a box names it; what nothing imports comes first.
    lines = [
        f'    {box[0]}["{" · ".join(box)}"]'
        for box in sorted(set(boxes.values()), key=lambda b: (-len(below[b[0]] - {*b}), b))
    ]
    lines += [f"    {source[0]} --> {target[0]}" for source, target in sorted(arrows)]
    return "\n".join(["```mermaid", "flowchart TD", *lines, "```"]) + "\n"


def redrawn(text: str, package: Path) -> str:
    """`text` with the drawing of `package` between its two marks.

    Raises:
        ValueError: unless the marks stand there once.
    """
    if len(_PLACE.findall(text)) != 1:
        raise ValueError("the text must hold `<!-- map: made by `make map` -->` and `<!-- end of map -->` once.")
    return _PLACE.sub(lambda found: found[1] + drawing(package) + found[2], text)
