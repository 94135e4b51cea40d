"""Serve a model that adapts over the Open Inference Protocol."""
