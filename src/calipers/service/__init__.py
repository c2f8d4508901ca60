"""A trust score over HTTP: scores, vectors or texts in, decisions out (`calipers serve`, extra `serve`)."""
