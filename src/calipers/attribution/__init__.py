"""attribute: every stage of a build on the same examples, the step that lost the metric, its nodes, and a fix."""
