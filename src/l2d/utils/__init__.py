"""Basics that all other rooms use: errors, files, seeds. Nothing here imports torch."""
