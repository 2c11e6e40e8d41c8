"""One reader per upstream annotation: path -> iterator of records, with a `Rejection` for each unusable entry."""
