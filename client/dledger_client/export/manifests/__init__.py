"""Plans and manifests of exports, and what an export holds by them.

checkpoint  What an export holds as of one version, in one file
history     What an export holds by now: its manifests read in order
records     What plans and manifests say, and their JSON
"""
