"""The way of a batch: the model under adaptation, the step, when it is taken, and the state it leaves."""
