"""The texts that lead from one label to another: written, parsed, checked, normalized."""
