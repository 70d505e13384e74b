"""Known bugs, put back one at a time: the simulation is believed because it catches each."""
