"""Where the repository is, the variables through which a build speaks to its chapters, and the error of a request."""

from pathlib import Path

BUILD_VARIABLE = "LEAKAGE_BUILD"  # the build folder, where it is not `_build` of the repository
PROCESSES_VARIABLE = "LEAKAGE_PROCESSES"  # among how many processes the points of a grid are divided
QUIET_VARIABLE = "LEAKAGE_QUIET"  # set while a page is made, where a progress bar would end up in the text


class UserError(Exception):
    """A request that cannot be carried out; the message is one line."""

    status = 2  # of the command


def find_root(start: Path | str | None = None) -> Path:
    """The nearest folder at or above `start` (default: the current one) that holds `_toc.yml` and `book/`.

    Raises:
        FileNotFoundError: if there is none.
    """
    first = Path(start or Path.cwd()).resolve()
    for folder in (first, *first.parents):
        if (folder / "_toc.yml").is_file() and (folder / "book").is_dir():
            return folder
    raise FileNotFoundError(f"no folder at or above {first} holds _toc.yml and book/: run inside the repository.")
