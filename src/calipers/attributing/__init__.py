"""attribute: every stage of a build on the same examples, the step that lost it, the nodes, and a fix."""

from calipers.attributing.request import BUDGET, Request, place
from calipers.attributing.work import attribute

__all__ = ["BUDGET", "Request", "attribute", "place"]
