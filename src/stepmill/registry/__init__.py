"""Which envs are known: records of ids, how an env is made, lists and hints."""
