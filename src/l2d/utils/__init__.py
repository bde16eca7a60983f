"""Basics that all other rooms use: errors, files, seeds. Only out_of_memory imports torch."""
