"""Pages, tables and charts."""
