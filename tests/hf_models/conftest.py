"""Leave out what only runs inside the libraries' own suites."""

collect_ignore = ["peer_suites.py"]
