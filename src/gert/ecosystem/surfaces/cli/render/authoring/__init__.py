"""What authors read: findings, changes, scenarios, test reports and tools."""
