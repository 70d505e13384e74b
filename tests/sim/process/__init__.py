"""What a simulated process runs on, instead of an operating system.

instruments  Every place at which the simulation stands in the way of code that ships
logs         Log lines of simulated processes: they go to the process that wrote them
loop         The event loop of one process, on the virtual clock
threads      The threads of a simulated process: jobs that run whole at drawn moments
"""
