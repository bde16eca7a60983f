"""The costs of experts: the classes that conf/cost names."""
