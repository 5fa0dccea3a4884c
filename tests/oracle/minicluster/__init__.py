"""PyFlink's mini-cluster as an oracle: whole jobs with JVM, state, timers and workers, next to StreamRT's test driver.

The other comparisons of `tests.oracle` drive PyFlink's operators without a JVM, over state and timers of their own. Here,
nothing of PyFlink is replaced. The cases are the same dicts, with only event time, and with these kinds of steps as well:

* `["o", key, timestamp, value]`: an element of the other input, where there are two.
* `["w", ms]`: so much time passes by the wall clock.
* `["end"]`: the inputs end, so that windows close and timers fire.

A case of process functions may have `"ttl": [ms, reads]`, by the wall clock: how long all state lives, and whether reads
prolong that. Cases of asynchronous functions have elements as `tests.oracle.actions.Answers` answers them, all of one key.

Results are a list of pairs, `[[output, key], rows]`: rows of one output and one key are in order; rows of different keys
are in none, in either system.
"""
