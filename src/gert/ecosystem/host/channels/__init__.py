"""Ways to carry requests for approval to people, and their answers back."""
