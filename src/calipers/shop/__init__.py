"""Colours, brands and sizes of a query and of a product, in English and Japanese, and whether they agree.

Pure: texts and columns in, values out. The words are in `data/`, and in files that a user adds; the code names no
colour, no brand and no unit. `sample` is a made-up shop.
"""

from calipers.shop.agree import Agreement, agree, agree_all
from calipers.shop.extract import ANALYSER, Attributes, Extractor
from calipers.shop.lexicon import Words, read_words
from calipers.shop.units import Quantity

__all__ = ["ANALYSER", "Agreement", "Attributes", "Extractor", "Quantity", "Words", "agree", "agree_all", "read_words"]
