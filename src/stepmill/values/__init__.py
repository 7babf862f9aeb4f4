"""What a value is: nested values as trees, spaces, whether a value fits its space, checks of arguments."""
