"""What `delta_tta.registry` was called before 0.2."""

from .renamed import renamed

__getattr__ = renamed(
    __name__,
    {
        "word": "delta_tta.registry:component",
        "WORDS": "delta_tta.registry:COMPONENTS",
        "Word": "delta_tta.registry:Component",
        "State": "delta_tta.registry:State",
    },
)
