"""Networks as parameters and the functions they compute, and classifiers of other libraries; nothing here trains."""
