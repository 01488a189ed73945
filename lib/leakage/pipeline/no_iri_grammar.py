"""No process of the pipeline compiles jsonschema's grammar of international addresses, which takes a second.

jsonschema does so when it is imported, which nbformat and Jupyter Book do, unless the package with the grammar is not
there; no notebook and no configuration is checked by it. So the package `leakage.pipeline` imports this module first.
"""

import sys

sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
