"""What `delta_tta.experiments` was called before 0.2."""

from . import experiments
from .renamed import renamed

__getattr__ = renamed(__name__, {name: f"delta_tta.experiments:{name}" for name in experiments.__all__})
