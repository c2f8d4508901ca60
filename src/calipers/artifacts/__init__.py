"""A PyTorch model to artifacts: exported, optimised, quantised, each checked against the stage before it."""
