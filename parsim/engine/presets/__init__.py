"""Engines by name: cards, models, and the roofline that makes step times of them."""
