"""What a command finds around it: terminals that lack signs, users without a home, messages that are no line."""

import io
import os
import sys
from contextlib import suppress
from pathlib import Path

_LONGEST_MESSAGE = 800  # characters


def one_line(text: object) -> str:
    """`text` on one line of bounded length, in which a terminal finds nothing to obey."""
    line = "".join(letter if letter.isprintable() else "�" for letter in " ".join(str(text).split()))
    if len(line) <= _LONGEST_MESSAGE:
        return line
    from leakage import arguments

    return arguments.shorten(line, _LONGEST_MESSAGE)


def write_on_any_terminal() -> None:
    """Have a sign that the terminal's encoding lacks, such as ✓, written as a question mark."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def lend_a_home(build: Path) -> None:
    """Give this process a home folder where the system knows none: the tools of Jupyter write their settings there.

    So it is for a user whom a container runs under a number only. Data stay where they were looked for before.
    """
    try:
        Path.home()
    except RuntimeError:
        from leakage.data import registry

        with suppress(RuntimeError):
            os.environ["LEAKAGE_DATA"] = str(registry.folder())
        os.environ["HOME"] = str(build)
