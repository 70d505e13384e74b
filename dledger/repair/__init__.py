"""Finding damage in what a member has on its disk, and mending it one entry at a time (I15).

Nothing here knows peers or rates: that is the broker's (`dledger_broker.repair`).

    scan         reads the committed entries of a segment from the disk, and names what is damaged
    mend         checks what a peer sent for a damage, and writes it in place
    findings     what a scrub has found, mended and left
    small_files  the files that are replaced as a whole: which of them cannot be read
"""
