"""The demo on real input: departures, faults, proof, report."""
