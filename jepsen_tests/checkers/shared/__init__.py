"""What several checkers share.

offset_ranges  Ranges of offsets that readers went through, whether or not they got a value at each
judgement  What a checker says: valid, invalid or not known, with the operations that show it
linear     Whether operations on one number can be put in an order that explains what they
log_view   What a history shows of each log: which value stands at which offset, and who saw it
readers    Where each reading process stood, and how it went on
realtime   What was certainly over before something else began
view       What checkers look at
"""
