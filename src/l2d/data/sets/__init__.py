"""The datasets that conf/dataset names."""
