"""What everything else stands on: errors, files, seeds. No torch, but in out_of_memory."""
