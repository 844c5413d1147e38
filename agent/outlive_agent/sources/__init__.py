"""Everything that can announce a reclaim: one file each."""
