"""The description of the interface (OpenAPI 3.1), with examples that fit the calibration."""

from __future__ import annotations

from typing import Any

from calipers.reliability import DECISIONS, Trust
from calipers.service.options import ServeOptions

_ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
_REFUSALS = {
    "400": "The body is no JSON.",
    "401": "The bearer token is missing or wrong.",
    "408": "The body did not arrive in time.",
    "409": "The vectors are of another model or corpus than the calibration's.",
    "413": "The body, the batch or a text is too large.",
    "422": "The query is not understood.",
    "429": "Too many texts are waiting.",
    "503": "The service is at its capacity, or leaving.",
}


def describe_api(trust: Trust, options: ServeOptions) -> dict[str, Any]:
    query = _query(trust)
    body = {
        "anyOf": [
            query,
            {
                "type": "object",
                "properties": {
                    "batch": {"type": "array", "items": query, "minItems": 1, "maxItems": options.max_batch}
                },
                "required": ["batch"],
                "additionalProperties": False,
            },
        ]
    }
    example = {"scores": [round(0.8 - 0.02 * place, 2) for place in range(trust.k)]}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Calipers: can this result be trusted?", "version": "1"},
        "paths": {
            "/v1/score": {"post": _post("Score queries by their scores, vectors or texts.", body, example)},
            "/v1/search": {
                "post": _post("Search for texts and score the results.", _text_body(), {"text": "red wine"})
            },
            **{
                path: {"get": {"summary": summary, "responses": {code: {"description": "It is."} for code in codes}}}
                for path, summary, codes in (
                    ("/healthz", "Is the process alive?", ("200",)),
                    ("/readyz", "Does it take requests?", ("200", "503")),
                    ("/metrics", "Counts for Prometheus.", ("200",)),
                    ("/openapi.json", "This description.", ("200",)),
                )
            },
        },
    }


def _query(trust: Trust) -> dict[str, Any]:
    number, d = {"type": "number", "minimum": -1e30, "maximum": 1e30}, trust.codec.dimensions
    cosine = {"type": "number", "minimum": -1, "maximum": 1}
    common = {name: {"type": "string"} for name in ("id", "model_fingerprint", "corpus_fingerprint")}
    vector = {"type": "array", "items": number, "minItems": d, "maxItems": d}
    near = {"type": "array", "items": vector, "minItems": trust.k, "maxItems": trust.k}
    scores = {"type": "array", "items": cosine, "minItems": trust.k, "maxItems": trust.k}
    kinds = ({"scores": scores}, {"vector": vector, "neighbours": near}, {"text": {"type": "string", "minLength": 1}})
    return {
        "oneOf": [
            {
                "type": "object",
                "properties": {**kind, **common},
                "required": list(kind),
                "additionalProperties": False,
            }
            for kind in kinds
        ]
    }


def _text_body() -> dict[str, Any]:
    return {"type": "object", "properties": {"text": {"type": "string", "minLength": 1}}, "required": ["text"]}


def _post(summary: str, body: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    answer = {
        "decision": {"enum": list(DECISIONS)},
        "reason": {"type": "string"},
        "probability": {"type": ["number", "null"]},
        "map": {"type": ["string", "null"]},
        "parts": {"type": "object"},
        "odd": {"type": "object"},
        "promise": {"enum": ["holds", "void", None]},
        "calibration": {"type": "string"},
    }
    result = {"type": "object", "properties": {**answer, "answers": {"type": "array"}}}
    refused = {
        code: {"description": why, "content": {"application/json": {"schema": _ERROR}}}
        for code, why in _REFUSALS.items()
    }
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body, "example": example}}},
        "responses": {
            "200": {"description": "Decided.", "content": {"application/json": {"schema": result}}},
            **refused,
        },
    }
