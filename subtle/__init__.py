"""What one runs, as a library: training, measuring, tables, footage, publishing."""
