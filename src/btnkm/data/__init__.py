"""Tables: frames, readers, types of columns and their statistics."""
