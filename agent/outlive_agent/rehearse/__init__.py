"""Proves on the user's own command that a run which was taken away equals one that was not.

Two fresh starts of a script need not be equal: many are never seeded. So nothing is compared with a second
fresh start, but with the future that one and the same process had::

    leg 1, uninterrupted   0 ------- k ----------------------------- N
                                     | saved on the way
    leg 2, reclaimed                 k ----------- m                      a fresh process from k
                                                   | saved by the reclaim, process killed
    leg 3, resumed                                 m --------------- N    a fresh process from m

Leg 1 is one process that nobody touches; it saves at k and goes on. What legs 2 and 3 do from k to N, in two
other processes, must be what leg 1 did, bit for bit: every metric, every batch, every tensor, the random
generators, the place in the data. k and m are drawn at random. Leg 2 is the proof for a checkpoint that was
taken on the way, leg 3 for one that a reclaim forced.

If something differs, **leg 4, the control**, resumes once more from the checkpoint at which the difference
arose. Does it equal the other resumed one? Then the training is deterministic, and a resume loses something.
Does it not? Then the training itself is not deterministic, and no checkpoint could make it so.

All of it happens in a store of its own. The command is the user's, unchanged, under the same ``outlive exec``
that guards it in earnest; a variable in its environment makes ``outlive.attach`` keep a diary.
"""
