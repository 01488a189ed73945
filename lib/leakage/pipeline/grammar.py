"""What keeps the start of a process short: one import that validating notebooks would make and never use."""

import sys


def spare_the_iri_grammar() -> None:
    """Keep jsonschema from compiling a grammar of addresses in every process, for a second; notebooks need none."""
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
