"""Commands about running members, one by one.

scrub  `dledger scrub`: let members look for damage on their disks, and mend it
"""
