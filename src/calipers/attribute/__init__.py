"""Which step broke a model, which nodes of the graph, and what to do: stages and nodes to culprits and a recipe."""
