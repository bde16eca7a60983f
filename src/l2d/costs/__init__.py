"""What an expert costs: the classes that conf/cost names."""
