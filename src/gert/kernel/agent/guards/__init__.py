"""What an enforced kernel insists on: personal data is kept from models, budgets hold, capabilities are checked."""
