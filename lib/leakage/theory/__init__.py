"""Laws and limits the experiments are measured against: closed forms, exact finite-sample laws, quadrature."""
