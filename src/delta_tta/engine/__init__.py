"""One step of adaptation: the adapted model, the update, its schedule and the state."""
