"""Data: the public sets (`datasets`), their loaders and strict parsers, synthetic laws and splits into members.

Nothing here trains. Loaders return CPU tensors or strings, read only payloads whose SHA-256 was checked, and never open
a pickle.
"""
