"""The words that options accept: one list each, which the library, the command line and the documentation read."""

from __future__ import annotations

POOLINGS = ("mean", "cls", "max", "last", "weightedmean", "mean_sqrt_len_tokens")
DTYPES = ("float32", "float16", "bfloat16")
SANDBOX = ("auto", "always", "never")
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
PSEUDO_LIKELIHOODS = ("original", "word-l2r")
COMPATIBLE = ("sentence-transformers",)
EMPTY_QUERIES = ("zero", "nan")
TIES = ("expected", "trec_eval")

PRECISIONS = ("fp32", "fp16", "int8-dynamic", "w8a8", "w8a16", "int4")
TARGETS = ("x86-avx2", "x86-vnni", "arm64")
CALIBRATIONS = ("minmax", "entropy", "percentile")
CODECS = ("fp16", "int8", "int4", "binary", "pq")
TRUST_MAPS = ("logistic", "isotonic")
SUCCESSES = ("relevant", "first", "ndcg")

ADAPTATIONS = ("mlm", "contrastive")
GRADES = ("plain", "esci")
WORDS = ("auto", "space", "phrases")
OVERLAPS = ("title", "title+text")

FAIL_ON = ("regression", "inconclusive", "at-risk")
REPORT_FORMATS = ("markdown", "json", "mteb", "model-index", "eval-results")

MOST_RESAMPLES = 1_000_000  # more cost minutes and change no digit that is shown
