"""What decides, in numpy alone: the layers and the filter use it, and so does `edge/`, which runs without torch."""
