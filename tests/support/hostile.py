"""Long texts made to be slow to read: `python -m tests.support.hostile [LENGTH]` reads each; quadratic time shows."""

from __future__ import annotations

import sys

from calipers.shop import Extractor

N = int(sys.argv[1]) if __name__ == "__main__" and len(sys.argv) > 1 else 10_000
TEXTS = (
    "1" * N,
    "1,111" * (N // 5),
    "1.1" * (N // 3),
    "1,1." * (N // 4),
    "1/2" * (N // 3),
    "1-1/2 " * (N // 6),
    "10-" * (N // 3),
    "10 x " * (N // 5),
    "W10×" * (N // 4),
    "5'6\"" * (N // 4),
    "not " * (N // 4) + "black",
    "not in a " * (N // 9) + "black",
    "black or " * (N // 9),
    "not black or " * (N // 13),
    "黒と" * (N // 2) + "以外",
    "for " * (N // 4) + "sony",
    "sony and " * (N // 9) + "compatible",
    "for hp, " * (N // 8),
    "iphone " * (N // 7) + "case",
    "iPhone/" * (N // 7) + "用",
    "ソニー" * (N // 3) + "対応",
    "apple " * (N // 6),
    "a-one-" * (N // 6),
    "ブラック" * (N // 4),
    "黒" * N,
    "一" * N,
    "二十" * (N // 2) + "枚",
    "万" * N,
    "½" * N,
    "a" + "\u0300\u0316" * (N // 2),
    "\u0300" * N,
    "ﾞ" * N,
    " " * N,
    "\n" * N + "red",
    "'" * N,
    '"' * N,
    "((((" * (N // 4),
    "x" * N + " 5 ml",
    "red" * (N // 3),
    "-" * N,
    "5 " * (N // 2) + "ml",
    "under " * (N // 6) + "5 kg",
    "5kg以上" * (N // 5),
    "1kg1g" * (N // 5),
    "1 111 " * (N // 6),
    "1 500 ml " * (N // 9),
    "1万1千" * (N // 4),
    "1…" * (N // 2),
    "<1kg" * (N // 4),
    "\x00\x1b[2J" * (N // 5),
    "🟥" * N,
)

if __name__ == "__main__":
    extractor = Extractor.from_files()
    for text in TEXTS:
        extractor.read(text, {"brand": text})
