"""How `leakage` is imported while tests run: each function, dataclass and named tuple is decorated by `running_types`.

Nothing else is imported before the library is, since pytest wants to be the first to import its plugins.
"""

import ast
import hashlib
import marshal
import os
import sys
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

PACKAGE = "leakage"
HERE = Path(__file__)


def install(*, but: tuple[str, ...] = ()) -> None:
    """Hold to their types what is imported from the package from now on, `but` some modules; the last word counts."""
    sys.meta_path.insert(0, _Finder(but))


class _Finder(MetaPathFinder):
    def __init__(self, but: tuple[str, ...]) -> None:
        self._but = but

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """What the other finders find, with a loader of ours."""
        if fullname.partition(".")[0] != PACKAGE or fullname in self._but:
            return None
        found = (
            finder.find_spec(fullname, path, target) for finder in sys.meta_path if not isinstance(finder, _Finder)
        )
        spec = next(filter(None, found), None)
        if spec and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> Any:
        """With decorators, which the file in `__pycache__` of the library lacks: it is kept in a file of ours."""
        source = self.get_data(self.path)
        made_of = (HERE.read_bytes(), source, f"{self.path} {sys.version} {sys.flags.optimize}".encode())
        digest = hashlib.sha256(b"\0".join(made_of)).digest()
        kept = HERE.with_name("__pycache__") / f"{fullname}.{sys.implementation.cache_tag}.held"
        with suppress(OSError, EOFError, ValueError, TypeError):
            found = kept.read_bytes()
            if found.startswith(digest):
                return marshal.loads(found[len(digest) :])
        tree = ast.parse(source, self.path)
        _decorate(tree.body)
        code = compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)
        if not sys.dont_write_bytecode:
            _keep(kept, digest + marshal.dumps(code))
        return code


def _keep(path: Path, content: bytes) -> None:
    """Write a file in one step, if it can be written at all."""
    half = path.with_name(f"{path.name}.{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(exist_ok=True)
        half.write_bytes(content)
        os.replace(half, path)


def _decorate(body: list[ast.stmt]) -> None:
    """Hold functions first, since what else decorates them wants functions; classes last, when they are dataclasses."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            node.decorator_list.insert(0, _decorator(node))
            _decorate(node.body)
        elif isinstance(node, ast.FunctionDef):
            node.decorator_list.append(_decorator(node))


def _decorator(node: ast.stmt) -> ast.expr:
    """`held`, in a module that has not imported it."""
    decorator = ast.parse("__import__('running_types').held", mode="eval").body
    return ast.copy_location(decorator, node)
