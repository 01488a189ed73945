"""Notebooks for JupyterLab: copies of those that the last build made, in `_build/lab`, where they may be changed.

`python -m reproduced.lab`, which `make lab` calls, prints the folder that JupyterLab should open: that of the copies,
or `book` with the sources of the chapters where there is no build. A copy that somebody has changed is never
overwritten.
"""

import json
import os
from pathlib import Path

import nbformat
from nbformat.sign import NotebookNotary

from reproduced.repository import find_root

_NEWS = "@jupyterlab/apputils-extension:notification"


def copy_notebooks(made: Path, lab: Path) -> list[str]:
    """Copy and trust the notebooks in `made` that nobody has changed in `lab`; return the names of the changed ones."""
    originals, changed = lab / ".made", []
    originals.mkdir(parents=True, exist_ok=True)
    for source in sorted(made.glob("*.ipynb")):
        copy, original = lab / source.name, originals / source.name
        if copy.is_file() and not (original.is_file() and copy.read_bytes() == original.read_bytes()):
            changed.append(source.name)
            continue
        for target in (copy, original):
            target.write_bytes(source.read_bytes())
        NotebookNotary().sign(nbformat.read(copy, as_version=4))
    return changed


def disable_news(settings: Path) -> None:
    """Turn off JupyterLab's question about news in its file of overridden settings."""
    told = json.loads(settings.read_text("utf-8")) if settings.is_file() else {}
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(json.dumps(told | {_NEWS: {"fetchNews": "false"}}, indent=2), "utf-8")


def main() -> None:
    root = find_root()
    if folder := os.environ.get("JUPYTER_CONFIG_DIR"):
        disable_news(Path(folder) / "labconfig" / "default_setting_overrides.json")
    made, lab = root / "_build" / "site" / "_build" / "html" / "_sources", root / "_build" / "lab"
    if not any(made.glob("*.ipynb")):
        print("book")
        return
    copy_notebooks(made, lab)
    print(lab.relative_to(root).as_posix())


if __name__ == "__main__":
    main()
