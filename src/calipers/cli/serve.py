"""`calipers serve`: a trust score over HTTP."""

from __future__ import annotations

from typing import Any

import click

from calipers.cli import options
from calipers.cli.grouped import GroupedCommand


@click.command(cls=GroupedCommand, short_help="A trust score over HTTP: scores, vectors or texts.")
@options.option(
    "Data", "--trust", required=True, metavar="FILE", help="The calibration: a file of `calipers trust --save`."
)
@options.option("Data", "--model", metavar="MODEL", help="To score texts as well; needs --corpus.")
@options.option("Data", "--corpus", metavar="C", help="What the calibration was fitted on.")
@options.flags("service.options:ServeOptions")
@options.MODEL_FLAGS
@options.STORE_FLAG
@options.CACHE_FLAGS
def serve(trust: str, model: str | None, corpus: str | None, **flags: Any) -> None:
    """Serve a trust score: POST /v1/score takes scores, vectors or texts, one or a batch.

    It listens on 127.0.0.1 unless --host says otherwise, which needs --token. /openapi.json describes it; /healthz,
    /readyz and /metrics are for operators. Logs are JSON lines on standard error. A new file in the place of --trust
    is taken while it runs; SIGTERM ends it when requests in work have ended.

    \b
    Examples:
      calipers serve --trust scifact.trust
      calipers serve --trust scifact.trust --model ./model --corpus ./scifact
      curl -s localhost:8080/v1/score -d '{"scores": [0.71, 0.68, 0.66, 0.6,
          0.59, 0.58, 0.58, 0.57, 0.55, 0.54]}'
    """
    from calipers.core.inputs import expand
    from calipers.service import api
    from calipers.service.options import ServeOptions

    with options.progress_bar() as progress:
        service = api.open_service(
            expand(trust),
            options.make(ServeOptions, flags),
            model=model,
            corpus=corpus,
            model_options=options.model_options(flags),
            vectors=options.vector_cache(options.open_store(flags["store"], False), flags) if model else None,
            progress=progress,
        )
    api.run(service)
