"""Results of a sweep -> charts, tables and words -> one self-contained HTML page."""
