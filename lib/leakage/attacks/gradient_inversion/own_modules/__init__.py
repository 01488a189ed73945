"""The batch behind the gradient of a reader's own module; it may use the paper's attack, which never uses it."""
