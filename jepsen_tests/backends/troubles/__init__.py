"""How disks, links and processes are troubled.

cgroup           A member's share of processor and memory
link_server      The process behind `links`: TCP proxies, one for each ordered pair of members
links            Troubled links: TCP proxies in a process of their own
loop_disk        A real disk under each member
namespaces       A run's own namespaces: nobody else sees what it mounts, or has its network
packet_rules     Packets that a member's network namespace drops, limits or resets
toxiproxy_links  Members as processes behind toxiproxy, one proxy for each ordered pair
"""
