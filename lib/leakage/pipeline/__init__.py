"""From MyST chapters to a judged, rendered book: the command line `leakage` and what it is made of."""

from leakage.pipeline import no_iri_grammar as no_iri_grammar
