"""Arrays to numbers: pure functions, which import nothing of ours.

- `arrays`: types and helpers that all share; `means`, `draws`, `bootstrap`, `paired`: sums, resamples, paired tests.
- `correlation`, `classification`, `ranking` (with `ranking_ties`), `overlap`, `lexical`: scores against judgements.
- `geometry`, `search`, `neighbours`, `agreement`: unit vectors, the exact search, and the shape of a space.
- `codecs`, `indexes`: vectors in fewer bits, and searches of an index.
- `trust`, `calibration`, `probabilities`, `assessment`: what one query shows, and how far it can be trusted.
"""
