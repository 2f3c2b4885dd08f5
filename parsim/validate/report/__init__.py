"""What a tier found, as words, tables and a page."""
