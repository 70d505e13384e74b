"""For those who debug a seed: its story as one page, a replay of a part of it, shrinking.

ddmin     the smallest part of a list that still fails: delta debugging
members   the state of every member at one moment, as a table
page      the page of one seed: who led, the faults, the answers, what came last
replay    which part of a seed runs: its faults, its clients, how long
shrink    fewer faults, fewer clients and less time that still break the same property
story     what happened, as rows in bounded memory
timeline  the rows as lines: one lane for each member, merged where nothing failed
watcher   the invariant that never complains: it tells the story of roles, logs and commits
words     the rows in words
"""
