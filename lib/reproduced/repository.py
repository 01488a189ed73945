"""Where the repository is, and the variables through which a build speaks to its chapters."""

import os
import re
import subprocess
from pathlib import Path

BUILD_VARIABLE = "LEAKAGE_BUILD"  # the build folder, where it is not `_build` of the repository
PROCESSES_VARIABLE = "LEAKAGE_PROCESSES"  # among how many processes the points of a grid are divided
QUIET_VARIABLE = "LEAKAGE_QUIET"  # set while a page is made, where a progress bar would end up in the text


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


def public_address(root: Path) -> str:
    """The web address of the repository: what CI says, else that of the remote `origin`; "" where neither is one."""
    if name := os.environ.get("GITHUB_REPOSITORY"):
        return f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}"
    asked = ["git", "-C", str(root), "remote", "get-url", "origin"]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # there is no git
        return ""
    place = re.fullmatch(r"(?:https://(?:[^@/]+@)?|(?:ssh://)?git@)([\w.-]+)[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?", found)
    return f"https://{place[1]}/{place[2]}" if place else ""
