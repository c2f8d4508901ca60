"""What `calipers trust` shows on a terminal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from calipers.core import printable
from calipers.metrics.trust import CONFIDENT
from calipers.reliability.answer import TrustAnswer
from calipers.reliability.trust import Trust
from calipers.rendering import numbers, tables

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN = 90  # characters of a neighbour's text
_ROWS = 8  # of the risk–coverage curve
_PARTS = {"stability": "stability", "coherence": "coherence", "top_score": "top cosine", "margin": "margin"}


def show_answer(console: Console, answer: TrustAnswer, *, details: bool) -> None:
    """Every query, the decision first; then the score. `details`: what its calibration found as well."""
    trust = answer.trust
    deciding = {kind for kind, detector in trust.detectors.items() if detector.acts}
    for row in range(len(answer.queries)):
        _show_query(console, answer.query(row), deciding, details=details)
    facts = [
        ("Model", answer.model_id),
        ("Corpus", f"{answer.corpus.source.path}, {len(answer.corpus):,} documents"),
        ("Codec", f"{trust.codec.name}, K = {trust.k}"),
        *([("Search", f"by {trust.similarity}")] if trust.similarity != "cosine" else []),
        ("Score", _describe_score(trust)),
        ("Decision", f"on the {trust.thresholds.on}: {trust.thresholds}"),
        ("", trust.thresholds.why),
        *_second_stage(trust),
    ]
    tables.show_facts(console, "trust", facts)
    if details:
        _show_calibration(console, trust.report.get("calibration") or {}, trust.method)
        _show_detectors(console, trust.report.get("detectors") or ())
    for note in answer.notes:
        tables.warn(console, printable(note))


def _second_stage(trust: Trust) -> list[tuple[str, str]]:
    """What a reranker is worth after the map that knows most without it."""
    maps = (trust.report.get("calibration") or {}).get("maps") or {}
    trades = [one["rerank"]["sentence"] for one in maps.values() if one.get("rerank")]
    return [("Second stage", trades[-1])] if trades else []


def _describe_score(trust: Trust) -> str:
    if not trust.maps:
        return "R_q, which is no probability"
    kind, chosen = list(trust.maps.items())[-1]
    read = ", ".join(name.replace("_", " ") for name in chosen.features)
    return f"a probability by the {trust.method} map of {kind} ({read})"


def _show_maps(console: Console, calibration: Mapping[str, Any]) -> None:
    predictors = [
        {"predictor": one["name"].replace("_", " "), "input": one["input"], "auroc": _with_interval(one["auroc"])}
        | {"nAUC": _number(_float(one["nauc"]))}
        for one in calibration.get("predictors", ())
    ]
    tables.show_records(console, predictors)
    maps = [
        {
            "map of": kind,
            "chosen": one["chosen"]["about"].replace("_", " "),
            "auroc": _with_interval(one["auroc"]),
            "over the top cosine": _with_interval(one["gain"]),
            "nAUC": _number(_float(one["nauc"])),
        }
        for kind, one in calibration.get("maps", {}).items()
    ]
    tables.show_records(console, maps)
    for kind, one in calibration.get("maps", {}).items():
        tables.say(console, printable(f"{kind}: {one['sentence']}"))
        if one["promise"]:
            tables.say(console, printable(f"{kind}: {one['promise']['sentence']}"))
        if one.get("rerank"):
            tables.say(console, printable(f"{kind}: {one['rerank']['sentence']}"))
            tables.show_records(console, [_trade(point) for point in one["rerank"]["curve"]])


def _trade(point: Mapping[str, Any]) -> dict[str, str]:
    return {
        "rerank calls saved": f"{1 - point['calls']:.0%}",
        "nDCG@10": _number(_float(point["ndcg"])),
        "kept": f"{_float(point['kept']):.1%}",
    }


def _float(value: float | None) -> float:
    return float("nan") if value is None else value


def _show_calibration(console: Console, calibration: Mapping[str, Any], method: str) -> None:
    _show_maps(console, calibration)
    tables.show_records(console, [_quality(score) for score in calibration.get("scores", ())])
    for sentence in calibration.get("sentences", ()):
        tables.say(console, printable(sentence))
    points = [
        {
            "probability stated": f"{point['probability']:.3f}",
            "share that succeed": _with_interval({"value": point["share"], "interval": point["interval"]}),
            "queries": str(point["count"]),
        }
        for point in calibration.get("reliability_curve", {}).get(method) or ()
    ]
    tables.show_records(console, points)
    risks = calibration.get("risk_coverage", {}).get(method) or ()
    shares = [
        {
            "queries answered": f"{risk['coverage']:.0%}",
            "failures among them": f"{risk['risk']:.1%}",
            "probability from": f"{risk['threshold']:.3f}",
        }
        for risk in (risks[3::4] if len(risks) > _ROWS else risks)
    ]
    tables.show_records(console, shares)


def _quality(score: Mapping[str, Any]) -> dict[str, str]:
    return {
        "score": score["about"],
        **{key: _with_interval(score[key]) for key in ("auroc", "brier", "ece")},
        "ece of chance alone": _with_interval({"value": score["honest_ece"], "interval": None}),
    }


def _show_detectors(console: Console, detectors: Sequence[Mapping[str, Any]]) -> None:
    tables.show_records(console, [_detector(detector) for detector in detectors if not detector["reason"]])
    for detector in detectors:
        if detector["reason"]:
            kind, reason = (str(detector[key]).replace("_", " ") for key in ("kind", "reason"))
            tables.say(console, printable(f"No detector of {kind} queries: {reason}."))


def _detector(detector: Mapping[str, Any]) -> dict[str, str]:
    share = detector["found"]
    return {
        "odd queries": detector["kind"].replace("_", " "),
        "auroc": _with_interval(detector["auroc"]),
        "by R_q alone": _with_interval(detector["by_reliability"]),
        "by the top cosine alone": _with_interval(detector["by_top_score"]),
        "found at 5 % false alarms": "none" if share is None or share != share else f"{share:.0%}",
        "decides": "yes" if detector["acts"] else "no",
    }


def _with_interval(figure: Mapping[str, Any]) -> str:
    value, ends = figure["value"], figure["interval"]
    if value is None or value != value:
        return "none"
    return f"{value:.3f}" + (f" ({ends[0]:.3f} to {ends[1]:.3f})" if ends else "")


def _show_query(console: Console, query: Mapping[str, Any], deciding: Collection[str], *, details: bool) -> None:
    """`deciding`: the kinds of odd queries whose detector takes part in the decision."""
    is_estimated = query["probability"] == query["probability"]
    facts = [("Decision", f"{query['decision']}: {query['reason']}")]
    if is_estimated:
        facts.append(("Probability", f"{query['probability']:.3f} (map of {query['map']})"))
    if details or not is_estimated:
        facts.append(("Reliability", f"{_number(query['reliability'])} (high confidence above {CONFIDENT})"))
    if details:
        facts.append(("Parts", ", ".join(f"{name} {_number(query[key])}" for key, name in _PARTS.items())))
    looks = [
        f"{kind.replace('_', ' ')}{'' if kind in deciding else ' (reported only)'}"
        for kind, odd in query["odd"].items()
        if odd
    ]
    if looks:
        facts.append(("Looks", ", ".join(looks)))
    tables.show_facts(console, printable(query["query"]), facts)
    neighbours = [
        {
            "": str(neighbour["rank"]),
            "cosine": neighbour["cosine"],
            "id": printable(neighbour["id"]),
            "text": numbers.shorten(printable(neighbour["text"]), _SHOWN),
        }
        for neighbour in query["neighbours"]
    ]
    tables.show_records(console, neighbours)  # none where the query's vector is zero


def _number(value: float) -> str:
    return f"{value:.3f}" if value == value else "none"
