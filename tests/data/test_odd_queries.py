"""Queries of domains that a corpus does not speak of: chosen by words, in the languages that are asked."""

from __future__ import annotations

from itertools import pairwise

from calipers.data import odd_queries

SHOPPING = odd_queries.bundled(("en",))["shopping"]
LAW = odd_queries.bundled(("en",))["law"]


def test_five_domains_in_two_languages_are_bundled_and_no_query_twice() -> None:
    both = odd_queries.bundled(("en", "ja"))
    assert list(both) == ["cooking", "medicine", "law", "software", "shopping"]
    assert {len(queries) for queries in both.values()} == {45}
    assert len({query for queries in both.values() for query in queries}) == 225


def test_a_corpus_that_speaks_of_a_domain_is_not_asked_about_it() -> None:
    found = odd_queries.foreign([*SHOPPING, *LAW], ["red mug"])
    assert set(found.domains) == {"cooking", "medicine", "software"}
    assert len(found.queries) == 90


def test_a_query_whose_words_all_stand_in_one_text_has_an_answer_there() -> None:
    cooking = odd_queries.bundled(("en",))["cooking"]
    held = "Boil soft eggs as LONG as you like; season a cast iron skillet the best way."
    split = ["sourdough", "starter", "rising"]  # no text holds them all
    found = odd_queries.foreign([held, *split, *SHOPPING, *LAW], ["red mug"])
    assert "cooking" in found.domains
    assert set(cooking) - set(found.queries) == {
        "how long to boil soft eggs",
        "best way to season a cast iron skillet",
    }


def test_queries_are_of_the_languages_that_are_asked() -> None:
    japanese = odd_queries.foreign(["赤い マグカップ"], ["赤い マグカップ", "傘"])
    assert len(japanese.queries) == 45
    assert all(odd_queries._CHARACTERS["ja"].search(query) for query in japanese.queries)
    assert len(odd_queries.foreign(["赤い マグカップ"], ["赤い マグカップ", "red mug"]).queries) == 135


def test_no_model_and_no_order_of_texts_decides() -> None:
    texts = [*SHOPPING, *LAW]
    assert odd_queries.foreign(texts, ["mug"]) == odd_queries.foreign(texts[::-1], ["mug"])


def test_a_corpus_is_looked_through_evenly(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(odd_queries, "_TEXTS", 10)
    found = odd_queries.foreign([text for text in SHOPPING for _ in range(3)], ["mug"])
    assert "shopping" not in found.domains


def test_gibberish_follows_its_seed_and_holds_no_long_word_of_a_language() -> None:
    found = odd_queries.gibberish(50, seed=3)
    assert found == odd_queries.gibberish(50, seed=3)
    assert found != odd_queries.gibberish(50, seed=4)
    assert all(text.strip() and len(text.split()) <= 4 for text in found)


def test_a_keyboard_walk_goes_from_key_to_key() -> None:
    for text in odd_queries.gibberish(40)[1::2]:
        for word in text.split():
            assert all(b in odd_queries._beside(a) for a, b in pairwise(word))


def test_vague_terms_are_frequent_but_not_everywhere() -> None:
    texts = ["the red box", "the red hat", "the old box", "the cat", "the dog"]
    assert odd_queries.vague(texts, 2) == ["box", "red"]
    assert odd_queries.vague([], 5) == []
    assert odd_queries.vague(["a bc"], 5) == []
