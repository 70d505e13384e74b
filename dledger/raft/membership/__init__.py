"""Who takes part in a group: formation, hellos, quarantine (D18).

formation   Who may take part: first formation, adoption, quarantine (D18)
hellos      Hellos between members
quarantine  The way out of a quarantine
"""
