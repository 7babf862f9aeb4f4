"""The soak: process pools under full load, while processes are killed and stopped and envs fail at random instants.

Read in this order: ``env`` (what runs), ``ledger`` (what must come back), ``lane`` (who sends and receives),
``chaos`` (who kills), ``memory`` (what must stay flat), ``__main__`` (the run and its report).
"""
