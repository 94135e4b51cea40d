"""Random views of images, for the methods and the training that want some."""
