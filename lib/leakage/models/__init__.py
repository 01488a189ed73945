"""Networks that are attacked, as parameters and the functions they compute; nothing here trains."""
