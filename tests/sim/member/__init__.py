"""Simulated members: the product on a simulated machine.

convinced     A leader whose trials have found that waiting for callers pays
member        One simulated machine: its disk, its clock, its process
process       The process of a simulated member
saving        Saving a simulated member's state now and then
service       What a simulated member answers to clients: the broker's use cases without gRPC
small_tables  The state's tables with small blocks, and short waits for clocks
"""
