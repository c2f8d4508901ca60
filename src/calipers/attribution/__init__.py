"""attribute: every stage of a build on the same examples, the step that lost it, the nodes, and a fix."""

from calipers.attribution.api import attribute
from calipers.attribution.request import BUDGET, Request, place

__all__ = ["BUDGET", "Request", "attribute", "place"]
