"""The unary calls of `dledger.v1.Delivery`.

progress  Progress of consumer groups: claims, releases, what is known of each queue, lag
"""
