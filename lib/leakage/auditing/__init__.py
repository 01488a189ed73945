"""What stands behind `leakage.audit`: what is given, the attacks it allows, their intervals, a table and a report."""
