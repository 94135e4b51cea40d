"""What the commands share: options and their completion, how cells run, what is printed where."""
