"""Learns response lengths while it serves, and watches whether scores rank as they should.

    hashing     a request's tokens and marks as sparse rows
    ridge       linear model on such rows: exact dual steps, replayed; forgets by taking rows out
    means       running means by key: app, limit, prompt length, the prompt itself
    kendall     tau-b with interval, where some lengths are only lower bounds
    online      the learner: several models weighted by how they rank lately
    worker      the learner on a thread of its own, beside a live scheduler
    judge       do no harm: are the scores in use better than no order?
    store       the learner's state on disk

Standard library and numpy only: it runs inside the serving process and in simulated time alike.
"""
