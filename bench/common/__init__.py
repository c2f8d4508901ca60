"""What the benches share: rounds with a yardstick, and the lines of the one table that `python -m bench` makes."""
