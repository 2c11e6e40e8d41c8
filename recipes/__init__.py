"""The recipes as an installed package, run by the command `subtle`; each is a script and is run, not imported."""
