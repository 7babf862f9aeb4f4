"""Programs to run from a shell: ``python -m stepmill.cli.demo``."""
