"""Black-box membership attacks on the losses of trained networks, with other networks as references."""
