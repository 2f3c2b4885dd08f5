"""Step times fitted to what a real engine did."""
