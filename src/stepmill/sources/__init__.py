"""From a task, an id or a class or a list, to what is built: configurations, simulators, models, islands."""
