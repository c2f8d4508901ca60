"""Arrays to numbers. Pure functions; nothing of ours is imported here."""
