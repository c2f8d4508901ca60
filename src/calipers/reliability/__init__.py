"""Can this one result be trusted? A score per query from vectors alone, cheap enough for production.

>>> import numpy as np
>>> from calipers.reliability import Trust
>>> corpus = np.random.default_rng(0).normal(size=(300, 16))
>>> trust = Trust.fit(corpus)
>>> scores = trust.score(corpus[:2], corpus[2:22].reshape(2, 10, 16))
>>> scores.decision.shape, bool((scores.parts.reliability <= 1).all())
((2,), True)
"""

from calipers.reliability.records import (
    DECISIONS,
    METHODS,
    DecisionThresholds,
    Detector,
    InputMap,
    Success,
    TrustScores,
)
from calipers.reliability.trust import Trust

__all__ = ["DECISIONS", "METHODS", "DecisionThresholds", "Detector", "InputMap", "Success", "Trust", "TrustScores"]
