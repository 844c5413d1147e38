"""Any object store: the interface, three implementations, and what makes them reliable."""
