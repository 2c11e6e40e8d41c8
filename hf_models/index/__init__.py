"""An index of moments by their vectors, in one folder or bucket."""
