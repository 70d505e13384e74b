"""The unary calls of `dledger.v1.Delivery`.

explaining  What became of a record
groups      Consumer groups as objects of the cluster: create, update, delete
progress    Progress of consumer groups: claims, releases, what is known of each queue, lag
schedules   Schedules: setting one, deleting one, listing them
timers      Timers: recalling a delayed message, listing what waits
"""
