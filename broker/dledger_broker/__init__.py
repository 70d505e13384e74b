"""A member of a broker group: services, use cases, admission, long polling."""
