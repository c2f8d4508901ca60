"""parity: are two things that should be the same model the same, and if not, which setting differs?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from calipers.core import SILENT, CalipersError, Encoder, Progress
from calipers.fidelity import wording
from calipers.fidelity.answers import Answers, Other, ask, batch_limit, load_encoder
from calipers.fidelity.changes import Reference
from calipers.fidelity.distances import cosines, gaps, lengths, refuse_invalid
from calipers.fidelity.records import Cosines, Deviation, Parity, ParityOptions, ProbeText
from calipers.fidelity.rounding import find_type
from calipers.fidelity.search import Explanation, Search
from calipers.fidelity.texts import dataset_texts, probe_texts
from calipers.metrics.arrays import Floats, Vectors
from calipers.models import ModelOptions, find

_ANOTHER = 0.5  # below this median cosine no setting is near by itself
_NEAR = 0.8  # nor several together
_FEW = 12  # texts that are sent again with a prompt
# Options that count for the other side too, by its backend; the first ones only for it where the reference has no use.
_RUNNING = ("device", "threads", "sandbox", "batch_size")
_OF_OTHER = {
    "http": ("model_id", "timeout", "batch_size"),
    "onnx": ("model_id", "file_name", "provider", "output", *_RUNNING),
    "torch": ("allow_pickle", "trust_remote_code", *_RUNNING),
}


def parity(
    reference: str | Encoder,
    other: str | Encoder,
    *,
    dataset: str | None = None,
    options: ParityOptions | None = None,
    model_options: ModelOptions | None = None,
    progress: Progress = SILENT,
) -> Parity:
    """Whether `other` (an endpoint, an ONNX file, a folder) gives the vectors of `reference`, over bundled texts in
    eight languages or those of `dataset`. Where it does not, settings of the reference are tried until it gives the
    other's vectors: these are the differences. `model_options` are those of the reference; what is about running a
    model counts for both.

    >>> import calipers
    >>> parity = calipers.parity("./model", "./cls", dataset="texts.txt")
    >>> parity.same, [difference.setting for difference in parity.differences]
    (False, ['pooling'])
    """
    options, model_options = options or ParityOptions(), model_options or ModelOptions()
    own_options = model_options
    if isinstance(reference, str):
        own_options = _reference_options(reference, other, model_options)
        ours = Reference(load_encoder(reference, own_options))
    else:
        ours = Reference(reference)
    if dataset is not None:
        texts = dataset_texts(dataset, options.samples)
    else:
        texts = probe_texts(ours.max_length, ours.prompts)
    theirs = Other(other, _other_options(reference, other, model_options))
    answers = ask(theirs, [probe.text for probe in texts], progress)
    kept = [texts[i] for i in answers.places]
    case = _Case(ours, theirs, answers, kept, options.tolerance, reference, own_options)
    refuse_invalid(case.plain, "the reference")
    return case.compare(progress, {texts[i].text: words for i, words in answers.refused.items()})


def _reference_options(reference: str, other: str | Encoder, options: ModelOptions) -> ModelOptions:
    """The options without those that only the other side honours."""
    defaults, own = ModelOptions(), find(reference).backend
    theirs = set(_OF_OTHER.get(find(other).backend, ())) if isinstance(other, str) else {"batch_size"}
    shared = {*_OF_OTHER.get(own, ()), "device", "threads", "sandbox"} - {"batch_size"}
    return replace(options, **{name: getattr(defaults, name) for name in theirs - shared})


def _other_options(reference: str | Encoder, other: str | Encoder, options: ModelOptions) -> ModelOptions:
    """What counts for the other side: an endpoint's name, how models are run. An ONNX file without a tokenizer beside
    it takes the one of a reference on this machine."""
    if not isinstance(other, str):
        return ModelOptions()
    source = find(other)
    chosen = {name: getattr(options, name) for name in _OF_OTHER.get(source.backend, ()) if name in options.changed()}
    place = source.path
    if place is not None and place.suffix == ".onnx" and "model_id" not in chosen and isinstance(reference, str):
        beside = any((folder / "tokenizer.json").exists() for folder in (place.parent, place.parent.parent))
        if not beside and Path(reference).is_dir():
            chosen["model_id"] = reference
    return ModelOptions(**chosen)


@dataclass(frozen=True)
class _Case:
    """Both sides on the texts that the other one answered."""

    ours: Reference
    theirs: Other
    answers: Answers
    texts: Sequence[ProbeText]
    tolerance: float
    reference: str | Encoder
    options: ModelOptions

    @property
    def plain(self) -> Vectors:
        return self.ours.encode(self._texts)

    @property
    def _texts(self) -> list[str]:
        return [probe.text for probe in self.texts]

    @property
    def who(self) -> str:
        return "The endpoint" if self.theirs.is_endpoint else "The other model"

    def compare(self, progress: Progress, refused: dict[str, str]) -> Parity:
        apart = gaps(self.plain, self.answers.vectors)
        explanation = Search(self.ours, self._texts, self.answers.vectors, self.tolerance, progress).explain()
        differences = [*self._settings(explanation), *self._requests(explanation)]
        cosine, groups = self._cosines(apart)
        largest = max(float(apart.max()), *(float(part.max()) for part in self._shared_gaps().values()), 0.0)
        same = not differences and largest <= self.tolerance
        nearest = max(explanation.tried, key=lambda tried: tried.median, default=None)
        rest = (
            ""
            if explanation.explained or any(d.setting == "model" for d in differences)
            else (wording.unexplained(nearest))
        )
        if not same and not differences and not rest:
            rest = wording.small_gaps(largest, self.tolerance)
        notes = [*self.answers.notes, *self._notes(refused)]
        headline = wording.headline(differences, cosine, same=same, rest=rest)
        models = (self.ours.model.info, self.answers.model.info)
        tried = explanation.tried[1:]
        return Parity(*models, same, headline, cosine, groups, differences, tried, self.tolerance, notes, refused)

    def _notes(self, refused: dict[str, str]) -> list[str]:
        notes = (
            [f"{len(refused)} texts were refused and are left out: {next(iter(refused.values()))}"] if refused else []
        )
        if self.ours.tokenizer is None:
            notes.append(
                "of this reference only prompts, the case of texts, spaces and vectors can be changed: pooling, "
                "special tokens and lengths were not tried"
            )
        return notes

    # --- what differs for every text ---------------------------------------------------------------------------------

    def _settings(self, explanation: Explanation) -> list[Deviation]:
        sizes = (self.plain.shape[1], self.answers.vectors.shape[1])
        if not explanation.explained:
            # Of many trials with two or three settings one comes nearer by chance.
            single = max((one for one in explanation.tried if len(one.settings) < 2), key=lambda one: one.median)
            far = single.median < _ANOTHER and float(np.median(cosines(explanation.apart))) < _NEAR
            return [wording.other_model(self.who, single, sizes)] if far else []
        rounding = self._rounding(explanation)
        apart = explanation.apart
        restored = _smallest(apart)
        if rounding:
            restored = rounding[0].restores or restored
        differences = []
        for change in explanation.changes:
            if change.is_named:
                shown = self._with_prompt(explanation) if change.setting == "prompt" and change.prompt == "" else None
                differences += wording.changed(self.who, change, restored if shown is None else shown)
        return [*differences, *self._scaling(explanation, sizes, restored), *rounding]

    def _with_prompt(self, explanation: Explanation) -> float | None:
        """The smallest cosine once the prompt that the other one lacks is sent with the texts."""
        places = sorted(range(len(self._texts)), key=lambda i: len(self._texts[i]))[:_FEW]
        texts = [self._texts[i] for i in places]
        kept = tuple(change for change in explanation.changes if change.setting != "prompt")
        try:
            sent = self.theirs.encode_alone([self.ours.prompt + text for text in texts])
        except CalipersError:
            return None
        return _smallest(gaps(self.ours.encode(texts, kept), sent))

    def _rounding(self, explanation: Explanation) -> list[Deviation]:
        apart = explanation.apart
        if apart.max() <= self.tolerance:
            return []
        ours = self.ours.encode(self._texts, explanation.changes)

        def compute(name: str) -> Vectors | None:
            if not isinstance(self.reference, str) or find(self.reference).backend != "torch":
                return None
            model = Reference(load_encoder(self.reference, replace(self.options, dtype=name)))
            return model.encode(self._texts, explanation.changes)

        kind = find_type(ours, self.answers.vectors, compute, self.tolerance)
        if kind is None:
            return []
        before, after = _smallest(apart), _smallest(kind.apart)
        return [wording.rounded(self.who, kind.name, after, before, is_measured=kind.is_measured)]

    def _scaling(self, explanation: Explanation, sizes: tuple[int, int], restored: float) -> list[Deviation]:
        """Vectors of another length, or with fewer numbers."""
        size, (whole, given) = min(sizes), sizes
        ours = self.ours.encode(self._texts, explanation.changes)
        limit = max(1e-3, 3 * float(explanation.apart.max()))
        theirs = lengths(self.answers.vectors)
        cut = lengths(ours[:, :size])
        if given > whole:
            return [wording.lengthened(self.who, whole, given, restored)]
        rescaled = _is_unit(theirs, limit) and not _is_unit(cut, limit)
        if given < whole:
            first = wording.shortened(self.who, given, whole, restored, rescaled=rescaled)
            as_cut = rescaled or _agree(cut, theirs, limit)
            return [first] if as_cut else [first, self._unscaled(explanation, size, limit)]
        if _agree(cut, theirs, limit):
            return []
        if rescaled:
            return [wording.scaled(self.who, _range(cut), "length 1", restored)]
        return [self._unscaled(explanation, size, limit)]

    def _unscaled(self, explanation: Explanation, size: int, limit: float) -> Deviation:
        """The other one does not normalise, if the reference without normalisation has its lengths."""
        theirs = lengths(self.answers.vectors)
        plain = self.ours.unscaled(self._texts, explanation.changes)
        confirmed = plain is not None and _agree(lengths(plain[:, :size]), theirs, limit)
        own = lengths(self.ours.encode(self._texts, explanation.changes))
        words = "length 1 (normalised)" if _is_unit(own, limit) else _range(own)
        state = " (not normalised)" if confirmed else ""
        restored = _smallest(explanation.apart) if confirmed else None
        return wording.scaled(self.who, words, f"{_range(theirs)}{state}", restored)

    # --- what differs between requests -------------------------------------------------------------------------------

    def _requests(self, explanation: Explanation) -> list[Deviation]:
        alone = self.answers.vectors
        limit = batch_limit(explanation.apart, self.tolerance)
        restored = _smallest(explanation.apart)
        apart = float(np.median(explanation.apart))
        if self.answers.repeated > min(limit, max(self.tolerance, apart / 2)):  # it moves as far as it is away
            return [wording.unsteady(self.who, self.answers.repeated)]
        for shared in self.answers.shared:
            moved = shared.moved(alone)
            if moved.max() > limit:
                if shared.is_shuffled(alone, limit):
                    return [wording.shuffled(self.who, shared.size, restored)]
                worst = max(self.answers.shared, key=lambda one: float(one.moved(alone).max()))
                return [wording.batched(self.who, worst.size, Cosines.of(cosines(worst.moved(alone))), restored)]
        return []

    def _shared_gaps(self) -> dict[str, Floats]:
        plain = self.plain
        return {
            f"batch size: {shared.size}": gaps(plain[shared.places], shared.vectors) for shared in self.answers.shared
        }

    def _cosines(self, apart: Floats) -> tuple[Cosines, dict[str, Cosines]]:
        names = dict.fromkeys(group for probe in self.texts for group in probe.groups)
        parts = {name: [i for i, probe in enumerate(self.texts) if name in probe.groups] for name in names}
        groups = {name: Cosines.of(cosines(apart[rows])) for name, rows in sorted(parts.items())}
        shared = self._shared_gaps()
        groups |= {name: Cosines.of(cosines(part)) for name, part in shared.items()}
        everything = cosines(np.concatenate([apart, *shared.values()]))
        return replace(Cosines.of(everything), texts=len(apart)), groups


def _smallest(apart: Floats) -> float:
    return float(cosines(apart).min())


def _is_unit(norms: Floats, limit: float) -> bool:
    return bool((np.abs(norms - 1.0) <= limit).all())


def _agree(left: Floats, right: Floats, limit: float) -> bool:
    return bool((np.abs(left - right) <= limit * np.maximum(left, 1e-30)).all())


def _range(norms: Floats) -> str:
    first, last = f"{norms.min():.4g}", f"{norms.max():.4g}"
    return f"length {first}" if first == last else f"lengths {first} to {last}"
