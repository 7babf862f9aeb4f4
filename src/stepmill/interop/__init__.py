"""Where stepmill meets other libraries. A module here imports the one it is for, so nothing else imports it."""
