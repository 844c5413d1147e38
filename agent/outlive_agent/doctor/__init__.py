"""Says before money is spent whether this machine, bucket and job can keep the promise. One check a file."""
