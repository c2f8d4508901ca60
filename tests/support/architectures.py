"""Every text architecture that the installed transformers can make tiny with random weights, against a plain loop.

A row of the matrix is a family and an ability: equal to a plain loop, one text or pair at a time, by transformers
alone; or refused in one sentence. `python -m tests.support.architectures` measures all rows and writes
docs/architectures.md.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers.models.auto import modeling_auto

from calipers import models as ours
from calipers.artifacts.export import ExportSource, copy_settings, export
from calipers.artifacts.inputs import Rows
from calipers.artifacts.records import BuildOptions
from calipers.core import CalipersError, MaskedTokens
from calipers.models import ModelOptions
from calipers.models.layout import open_tokenizer, read_layout
from tests.support.masked_models import PIECES, SPECIAL

NEAR = 1e-5  # of the largest number of the plain loop, or of 1
CLASSES = {
    "fill-mask": "AutoModelForMaskedLM",
    "encode": "AutoModel",
    "score": "AutoModelForSequenceClassification",
}
TEXTS = ["the old dog runs", "cats", "slow readers sleeping in the garden near a big house , not far"]
PAIRS = [("the old dog", "runs"), ("cats", "a child sees the cats in the park"), ("slow readers", "sleep .")]

# Sizes by the names that configurations give them; an architecture takes those that it has.
_SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "dim", "n_embd", "emb_dim", "embedding_size", "hidden_dim_size"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layers", "num_layers", "n_layer", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_heads", "num_heads", "n_head"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "hidden_dim", "d_ff", "d_inner", "ffn_dim", "n_inner"), 48),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "ffn_hidden_size"), 48),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 70),
    **dict.fromkeys(("head_dim", "d_kv", "d_head"), 8),
    **dict.fromkeys(("num_experts", "n_routed_experts", "num_local_experts"), 4),
    "vocab_size": 64, "num_key_value_heads": 2, "num_decoder_layers": 2, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "type_vocab_size": 2, "pad_token_id": 0,
    "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3, "mask_token_id": 4,
    "decoder_start_token_id": 0, "initializer_range": 0.3,
}  # fmt: skip
_VISION = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 32}
_LATENT = {"kv_lora_rank": 8, "q_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8}
_MOST_PARAMETERS = 20_000_000

_ENCODERS = {
    "t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel", "longt5": "LongT5EncoderModel",
    "t5gemma": "T5GemmaEncoderModel", "switch_transformers": "SwitchTransformersEncoderModel",
}  # fmt: skip

# What a family needs beyond the common sizes; None leaves a size at the family's default.
_CHANGES: dict[str, dict[str, Any]] = {
    "canine": {"downsampling_rate": 2, "num_hash_buckets": 64, "local_transformer_stride": 8},
    "layoutlmv3": {"coordinate_size": 4, "shape_size": 8, "visual_embed": False, "max_2d_position_embeddings": 64},
    "cohere_compass_text": {"layer_types": ["full_attention", "full_attention"]},
    "qwen3_next": {"layer_types": ["linear_attention", "full_attention"]},
    "qwen3_5_text": {"layer_types": ["linear_attention", "full_attention"]},
    "t5": {"decoder_start_token_id": 0},
    "xlnet": {"max_position_embeddings": None},
    "zamba": {"num_hidden_layers": 3, "layers_block_type": ["linear_attention", "hybrid", "linear_attention"],
              "attention_hidden_size": 64, "attention_head_dim": 16, "mamba_dt_rank": 4},
    "axk1": {**_LATENT, "head_dim": 8, "num_key_value_heads": 4, "n_group": 1, "topk_group": 1},
    "axk2": {**_LATENT, "num_key_value_heads": 4, "n_group": 1, "topk_group": 1},
    "big_bird": {"block_size": 4, "num_random_blocks": 1},
    "bigbird_pegasus": {"block_size": 4, "num_random_blocks": 1},
    "deepseek_v2": {**_LATENT, "num_key_value_heads": 4, "n_group": 1, "topk_group": 1},
    "deepseek_v3": {**_LATENT, "num_key_value_heads": 4, "n_group": 1, "topk_group": 1},
    "esmc": {"num_key_value_heads": 4},
    "falcon": {"head_dim": None},
    "funnel": {"num_hidden_layers": None, "block_sizes": [1, 1], "num_decoder_layers": 1},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "gptj": {"rotary_dim": 4},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "mamba_dt_rank": 4},
    "layoutlm": {"max_2d_position_embeddings": 16},
    "lilt": {"hidden_size": 48, "max_2d_position_embeddings": 64},
    "longformer": {"attention_window": 8},
    "luke": {"entity_vocab_size": 8, "entity_emb_size": 8},
    "minicpm3": {**_LATENT, "num_key_value_heads": 4},
    "mistral4": {**_LATENT, "head_dim": 16, "num_key_value_heads": 4, "n_group": 1, "topk_group": 1},
    "mobilebert": {"embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16},
    "neomme": {"head_dim": 16},
    "perceiver": {"d_latents": 32, "num_latents": 8, "num_self_attends_per_block": 1, "num_blocks": 1,
                  "num_self_attention_heads": 4, "num_cross_attention_heads": 4},
    "reformer": {"axial_pos_embds_dim": [16, 16], "axial_pos_shape": [8, 8], "attn_layers": ["local", "lsh"],
                 "is_decoder": False, "hash_seed": 0, "attention_head_size": 8, "feed_forward_size": 48,
                 "local_attn_chunk_length": 8, "lsh_attn_chunk_length": 8, "num_buckets": 4,
                 "local_num_chunks_after": 0, "lsh_num_chunks_after": 0},
    "rembert": {"input_embedding_size": 16, "output_embedding_size": 16},
    "roc_bert": {"pronunciation_vocab_size": 64, "shape_vocab_size": 64, "pronunciation_embed_dim": 8,
                 "shape_embed_dim": 8},
    "xmod": {"default_language": "en_XX", "languages": ["en_XX"]},
}  # fmt: skip


def families(ability: str) -> list[str]:
    """Names of the families that transformers has for an ability; encoders are those of texts."""
    masked = modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    classifiers = modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
    if ability == "fill-mask":
        return sorted(masked)
    if ability == "score":
        return sorted(classifiers)
    return sorted({*masked, *classifiers, *modeling_auto.MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES, *_ENCODERS})


def _sizes(config: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    sizes = {name: value for name, value in _SIZES.items() if hasattr(config, name)} | dict(changes)
    for part in getattr(config, "sub_configs", {}):
        inner = getattr(config, part, None)
        if inner is not None:
            sizes[part] = _sizes(inner, {}) if "vision" not in part else _VISION
    return {name: value for name, value in sizes.items() if value is not None}


def make_tiny(family: str, ability: str, folder: Path) -> Path:
    """A folder with a random model of the family and a tokenizer of our own words."""
    default = transformers.AutoConfig.for_model(family)
    config = transformers.AutoConfig.for_model(family, **_sizes(default, _CHANGES.get(family, {})))
    with torch.device("meta"):
        size = sum(p.numel() for p in _make(family, ability, config).parameters())
    if size > _MOST_PARAMETERS:
        raise ValueError(f"its smallest configuration has {size // 1_000_000} million parameters")
    torch.manual_seed(0)
    model = _make(family, ability, config)
    for name, parameter in model.named_parameters():  # biases and norms too: zeros and ones hide mistakes
        if parameter.ndim == 1 and parameter.is_floating_point() and not name.endswith("A_log"):
            torch.nn.init.normal_(parameter, mean=0.5 if parameter.mean() > 0.5 else 0.0, std=0.1)
    model.save_pretrained(folder)
    _make_tokenizer(folder)
    return folder


def _make(family: str, ability: str, config: Any) -> Any:
    if ability == "score":
        config.num_labels = 1
        config.sbert_ce_default_activation_function = "torch.nn.modules.linear.Identity"  # logits are compared
    if family == "funnel" and ability == "encode":
        config.architectures = ["FunnelModel"]  # it has two encoders
    return getattr(transformers, CLASSES[ability]).from_config(config)


def _make_tokenizer(folder: Path) -> None:
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *PIECES])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    fast = transformers.PreTrainedTokenizerFast
    inputs = ["input_ids", "attention_mask", "token_type_ids"]
    fast(
        tokenizer_object=tokenizer, model_max_length=64, mask_token="[MASK]", model_input_names=inputs, **names
    ).save_pretrained(folder)


# --- the plain loop --------------------------------------------------------------------------------------------------


def plain(family: str, ability: str, folder: Path) -> np.ndarray:
    """One text or pair at a time, by transformers alone: mean-pooled vectors, logits, or log-probabilities."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = _load_plain(ability, folder)
    with torch.inference_mode():
        if ability == "score":
            return np.array([_run(model, tokenizer(a, b, return_tensors="pt")).logits[0].numpy() for a, b in PAIRS])
        if ability == "encode":
            rows = [_run(model, tokenizer(text, return_tensors="pt"), pairs=False) for text in TEXTS]
            return np.array([row.last_hidden_state[0].mean(0).numpy() for row in rows])
        return np.concatenate([_plain_masks(model, tokenizer, text) for text in TEXTS])


def _load_plain(ability: str, folder: Path) -> Any:
    kind, changes = CLASSES[ability], {}
    if ability == "encode":  # as sentence-transformers: the encoder alone, where transformers has a class for it
        family = json.loads((folder / "config.json").read_text())["model_type"]
        kind = _ENCODERS.get(family, kind)
        changes = {"is_encoder_decoder": False} if family == "t5gemma" else {}
    return getattr(transformers, kind).from_pretrained(folder, dtype=torch.float32, **changes).eval()


def _run(model: Any, tokens: Mapping[str, Any], *, pairs: bool = True) -> Any:
    import inspect

    taken = inspect.signature(model.forward).parameters
    names = ("input_ids", "attention_mask", *(["token_type_ids"] if pairs else []))
    return model(**{name: tokens[name] for name in names if name in taken or name == "input_ids"})


def _plain_masks(model: Any, tokenizer: Any, text: str) -> np.ndarray:
    tokens = tokenizer(text, return_tensors="pt")
    ids = tokens["input_ids"][0]
    answers = []
    for position in range(1, len(ids) - 1):
        hidden = ids.clone()
        hidden[position] = tokenizer.mask_token_id
        logits = _run(model, {**tokens, "input_ids": hidden[None]}, pairs=False).logits[0, position]
        answers.append(float(logits.float().log_softmax(-1)[ids[position]]))
    return np.array(answers)


# --- ours ------------------------------------------------------------------------------------------------------------


def measured(ability: str, reference: str, **options: Any) -> np.ndarray:
    """The same numbers by Calipers."""
    model: Any = ours.load(ours.find(reference), ModelOptions(threads=1, **options), ability)
    if ability == "encode":
        return np.asarray(model.encode(TEXTS))
    if ability == "score":
        return np.asarray(model.score(PAIRS)).reshape(len(PAIRS), -1)
    return np.asarray(model.log_probs(_questions(model))[0])


def _questions(model: Any) -> MaskedTokens:
    texts = model.tokenize(TEXTS)
    row = np.repeat(np.arange(len(texts), dtype=np.int32), [len(text.scored) for text in texts])
    position = np.concatenate([text.scored for text in texts])
    return MaskedTokens([text.ids for text in texts], row, position, position + 1)


# --- the matrix ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """`state`: equal, differs, refused, breaks (with an error that is not ours), or not built (the tiny
    configuration cannot be made, or the plain loop fails on it)."""

    family: str
    ability: str
    backend: str
    state: str
    gap: float | None = None  # one row at a time
    batched: float | None = None  # as the model is run by default
    sentence: str = ""


def judge(family: str, ability: str, folder: Path, *, backend: str = "torch") -> Row:
    """The row of one family, made in `folder`."""
    try:
        expected = plain(family, ability, make_tiny(family, ability, folder))
    except Exception as error:
        return Row(family, ability, backend, "not built", sentence=_first_line(error))
    try:
        reference = str(folder) if backend == "torch" else _export(folder, ability)
        gaps = [_gap(measured(ability, f"{backend}:{reference}", **o), expected) for o in ({"batch_size": 1}, {})]
    except CalipersError as error:
        return Row(family, ability, backend, "refused", sentence=str(error).replace(str(folder), "FOLDER"))
    except Exception as error:
        return Row(family, ability, backend, "breaks", sentence=_first_line(error))
    state = "equal" if max(gaps) <= NEAR else "differs"
    return Row(family, ability, backend, state, gaps[0], gaps[1])


def _gap(values: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, over the largest number of the plain loop where that is above 1."""
    if values.shape != expected.shape or not np.isfinite(values).all():
        return float("inf")
    return float(np.abs(values - expected).max() / max(1.0, np.abs(expected).max()))


def _export(folder: Path, ability: str) -> str:
    """The graph that `calipers build` exports, in a folder of its own."""
    model, layout = _load_plain(ability, folder), read_layout(folder)
    tokenizer = open_tokenizer(layout, max_length=64, pairs=ability == "score")
    tokens = tokenizer.encode_pairs(PAIRS) if ability == "score" else tokenizer.encode(TEXTS)
    ids = tuple(map(str, range(len(tokens))))
    rows = Rows(ids, tuple(tokens), tokenizer.pad_id, 64, layout.first_position, "texts", "sha256:0")
    target = folder / "onnx" / "model.onnx"
    target.parent.mkdir()
    source = ExportSource(folder, "sha256:0", folder.name, ability, None)
    export(model, target, source, rows, BuildOptions())
    copy_settings(folder, target.parent)
    return str(target)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:200]


# The families that are exported to ONNX as well: the most used ones.
EXPORTED = (
    "albert", "bert", "camembert", "convbert", "deberta", "deberta-v2", "distilbert", "electra", "ernie", "eurobert",
    "gte", "megatron-bert", "mobilebert", "modernbert", "mpnet", "nomic_bert", "roberta", "roformer", "squeezebert",
    "xlm-roberta",
)  # fmt: skip


def cells() -> Iterator[tuple[str, str, str]]:
    """(backend, ability, family) of every row of the matrix."""
    for ability in CLASSES:
        yield from (("torch", ability, family) for family in families(ability))
    for ability in CLASSES:
        yield from (("onnx", ability, family) for family in EXPORTED if family in families(ability))


def measure(done: Path) -> list[Row]:
    """All rows; those that the file has, one JSON record per line, are not measured again."""
    rows = [Row(**json.loads(line)) for line in done.read_text().splitlines()] if done.exists() else []
    measured_rows = {(row.backend, row.ability, row.family): row for row in rows}
    with done.open("a") as file:
        for backend, ability, family in cells():
            if (backend, ability, family) in measured_rows:
                continue
            with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                row = judge(family, ability, Path(place), backend=backend)
            measured_rows[backend, ability, family] = row
            print(json.dumps(asdict(row)), file=file, flush=True)
            gc.collect()
    return [measured_rows[cell] for cell in cells()]


# --- the page --------------------------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "architectures.md"
COLUMNS = [(backend, ability) for backend in ("torch", "onnx") for ability in CLASSES]
_INTRODUCTION = """# Architectures

Every masked language model, text encoder and sequence classifier that transformers {version} has, made tiny with random
weights and run by Calipers: one row at a time, and in the batches that it chooses. *Equal* is within {near:g} of a
plain loop of one text or pair at a time with transformers alone. *Refused* is an error in one sentence, listed below.
*Not built* says nothing about Calipers: our tiny configuration could not be made, or the plain loop itself fails on it.
The 20 most used families are also exported to ONNX, as `calipers build` exports.
`python -m tests.support.architectures FILE` measures the rows that FILE lacks and writes this page; `make test` runs
twelve families of each kind, `make test-slow` all.

"""


def page(rows: Sequence[Row]) -> str:
    by_cell = {(row.backend, row.ability, row.family): row for row in rows}
    names = sorted({row.family for row in rows})
    lines = ["| | rows | equal | differs | refused | not built |", "|---|---|---|---|---|---|"]
    for backend, ability in COLUMNS:
        states = [row.state for row in rows if (row.backend, row.ability) == (backend, ability)]
        counts = [states.count(state) for state in ("equal", "differs", "refused", "not built")]
        lines.append(f"| {backend}, {ability} | {len(states)} | {' | '.join(map(str, counts))} |")
    lines += ["", f"| family | {' | '.join(f'{b}, {a}' for b, a in COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name in names:
        states_of_family = [by_cell[b, a, name].state if (b, a, name) in by_cell else "–" for b, a in COLUMNS]
        lines.append(f"| {name} | {' | '.join(states_of_family)} |")
    reasons = [_reason(row) for row in rows if row.state != "equal"]
    head = _INTRODUCTION.format(version=transformers.__version__, near=NEAR)
    return head + "\n".join(lines) + "\n\n## Why a row is not equal\n\n" + "\n".join(reasons) + "\n"


def _reason(row: Row) -> str:
    gaps = f"off by {row.gap:.1e} alone and by {row.batched:.1e} in a batch" if row.gap is not None else ""
    return (
        f"- {row.family}, {row.backend}, {row.ability}: {row.state}. `{(row.sentence or gaps).replace('`', chr(39))}`"
    )


def states_on_page() -> dict[tuple[str, str, str], str]:
    """(backend, ability, family) → the state that the page shows."""
    table = [line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines()]
    rows = [cells for cells in table if len(cells) == len(COLUMNS) + 1 and cells[0] != "family"]
    return {
        (backend, ability, cells[0]): state
        for cells in rows
        for (backend, ability), state in zip(COLUMNS, cells[1:], strict=True)
        if state != "–"
    }


def main() -> None:
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    PAGE.write_text(page(measure(Path(sys.argv[1]))), encoding="utf-8")


if __name__ == "__main__":
    main()
