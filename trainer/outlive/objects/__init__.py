"""An object store, any: the interface, three implementations, and what makes them reliable. Knows no checkpoint."""
