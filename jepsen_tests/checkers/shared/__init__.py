"""What several checkers use.

judgement      what a checker says: valid, invalid or unknown, with the rows that show it
linear         the search for an order that explains operations on one number
log_view       what a history shows of each log: the value at each offset, and who saw it
offset_ranges  ranges of offsets that readers went through
parts          what each of several broker groups' members and queues saw
readers        where each reading process stood, and how it went on
realtime       which operations were over before another one began
stamps         the store times of records, as far as anybody was shown them
view           a history, with what several checkers need to know of it
"""
