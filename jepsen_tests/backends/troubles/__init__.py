"""The tools that trouble disks, links and processes.

cgroup           a control group for each member: its share of processor and memory
link_server      the process behind `links`: a TCP proxy for each ordered pair of members
links            starts that process and tells it which link to trouble
loop_disk        a real disk under each member: full, or without power
namespaces       namespaces of the run: nobody else copies its mounts or uses its network
packet_rules     drops, limits and resets packets in a member's network namespace
toxiproxy_links  processes behind toxiproxy, with a proxy for each ordered pair
"""
