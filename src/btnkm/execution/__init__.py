"""Where the rows are and how they are walked through."""
