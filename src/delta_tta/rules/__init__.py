"""What decides, in numpy alone: the layers and the filter use it, and so does `edge/`, which runs without torch."""

TRUSTED_SAMPLES = 9
"""update "auto": a batch with fewer samples is too small to learn from by itself. The paper finds it better to
start from the source up to 8 samples (appendix A.4)."""
