"""The name server: leases, routes, pushes."""
