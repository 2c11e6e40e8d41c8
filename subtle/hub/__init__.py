"""Publishing: the folder of each kind of publication, and its way to the Hub."""
