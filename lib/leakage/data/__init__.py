"""Real data sets: what there is (`registry`), what of it is here and how to get it (`fetch`), and strict parsers.

`embedded` holds the sets that need no file at all, and `points` reads a file of your own. Nothing here trains or draws;
every loader returns CPU tensors or strings, reads only payloads whose SHA-256 was checked, and never opens a pickle.
"""
