"""What drilling into one cell shows, as plain values: no layout, no keys."""
