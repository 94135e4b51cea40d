"""The filters over log-probabilities: evidence, weights and names of streams."""

import numpy as np
import pytest

from delta_tta.rules.filters import Beliefs, filtered


@pytest.mark.parametrize("smooth", [True, False])
def test_a_model_that_fails_where_domains_take_turns_is_not_filtered(smooth):
    """In each of four domains it mostly says one class, whatever it sees; in the end that is known."""
    rng, log_p, found = np.random.default_rng(0), [], []
    for turn in range(24):
        logits = rng.normal(size=(80, 10)).astype(np.float32)
        logits[:, turn % 4] += 2.5
        log_p.append(logits - np.log(np.exp(logits).sum(1, keepdims=True)))
        found.append(rng.normal(1.1 * (turn % 4), 0.2, 80).astype(np.float32))
    changes = {}
    for told in (True, False):
        beliefs, changes[told] = Beliefs(), 0.0
        for own, sharp in zip(log_p, found, strict=True):
            correction, beliefs = filtered(own, beliefs, None, smooth, sharp if told else None)
            changes[told] = float(((own + correction).argmax(1) != own.argmax(1)).mean())
    assert changes[True] < 0.1
    assert changes[False] > 0.15  # with one mean over all domains
