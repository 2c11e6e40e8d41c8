"""One reader per upstream annotation: path -> iterator of records, what cannot be used as `Rejection`."""
