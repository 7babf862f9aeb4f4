"""The version, in its one place: parts of the package that need it do not import the whole."""

__version__ = "0.1.0"
