"""What GPU backends have in common, whatever calls a launch is made of."""
