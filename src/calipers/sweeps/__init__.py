"""A registry of models, tasks and precisions, measured cell by cell on one machine or a cluster."""
