"""What the package does without a host."""
