"""What disks, transfers and editors do to a file."""

import random
from collections.abc import Iterator

LEAST = 300  # alterations of each file


def at_random(good: bytes) -> Iterator[bytes]:
    """The content with a bit flipped, a piece cut out or its end missing, with more at its end, or another."""
    draws = random.Random(0)
    for _ in range(200):
        place = draws.randrange(len(good))
        yield good[:place] + bytes([good[place] ^ 1 << draws.randrange(8)]) + good[place + 1 :]
    for _ in range(40):
        place = draws.randrange(len(good))
        yield good[:place] + good[place + draws.randrange(1, 40) :]
    yield from (good[: draws.randrange(len(good))] for _ in range(50))
    yield from (good + draws.randbytes(draws.randrange(1, 9)) for _ in range(10))
    yield from (b"", b"\0", bytes(32), bytes(1000), good + good, good[::-1])
