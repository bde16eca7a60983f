"""What an expert costs: one class per file of conf/cost."""
