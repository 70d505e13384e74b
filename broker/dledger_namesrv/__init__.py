"""The name server: where the members of every group are, who leads, which topics there are."""
