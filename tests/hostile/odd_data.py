"""More hostile data: forms that parse in one reader and not in another, files that are larger than they look."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import zipfile
from pathlib import Path
from random import Random

import pyarrow
import pyarrow.feather
import pyarrow.parquet

from tests.hostile.mutations import eval_line
from tests.hostile.places import Sound

_HEAD = "sentence1,sentence2,score\n"
_ROWS = "".join(f"the cat {i},a dog {i * 7 % 5},{i % 6}\n" for i in range(12))
_CSV = (
    _HEAD + _ROWS.replace("\n", "\r"), _HEAD.replace(",", ";") + _ROWS.replace(",", ";"), "sentence1,sentence1,score\n" + _ROWS, "\x1b[31m,\u202e,score\n" + _ROWS, _HEAD + '"' + _ROWS, _HEAD + _ROWS + '"a""b,c,1\n', _HEAD + _ROWS.replace(",", ",,"),
    _HEAD + _ROWS.replace("\n", "\x85"), _HEAD + _ROWS.replace("\n", "\n\r"), "# comment\n" + _HEAD + _ROWS, _HEAD.replace("score", "sc\x00ore") + _ROWS, _HEAD + _ROWS + "a,b\n" + "a,b,1,2\n",
    _HEAD + "a\x00b,c,1\n" + _ROWS, _HEAD, _ROWS, _HEAD + _ROWS * 40_000, _HEAD + f"{'a ' * 400_000},b,1\n" + _ROWS, _HEAD + "".join(f"a{i},b{i},{'9' * 400}\n" for i in range(6)), _HEAD + "".join(f"a{i},b{i},1e{i * 100}\n" for i in range(6)),
    _HEAD + "".join(f"a{i},b{i},{v}\n" for i, v in enumerate(("nan", "inf", "-0", "1e-400", "٣", "½", "0x1p3", "1_0"))), _HEAD + "".join(f"{'é' * 2_000}{i},b,{i}\n" for i in range(9)), "\ufeff\ufeff" + _HEAD + _ROWS, _HEAD + _ROWS.replace("text", "\u200b"),
    "sep=;\n" + _HEAD + _ROWS, _HEAD + "".join(f"\ufdfa{i},\U0001f468\u200d\U0001f469{i},{i}\n" for i in range(9)), _HEAD.upper() + _ROWS, " sentence1 , sentence2 , score \n" + _ROWS, "id,sentence1,sentence2,score\n" + "".join(f"x,a{i},b{i},{i}\n" for i in range(6)),
)  # fmt: skip
_JSON = (
    '{"sentence1": "a\\ud800", "sentence2": "b", "score": 1}\n' * 5, '{"sentence1": ["a"], "sentence2": {"b": 1}, "score": "1"}\n' * 5, '{"sentence1": "a", "sentence1": "c", "sentence2": "b", "score": 1}\n' * 5, "".join(f'{{"id": {i}e400, "sentence1": "a", "sentence2": "b", "score": {i}}}\n' for i in range(5)),
    "".join(f'{{"id": "\\u0000{i}", "sentence1": "a\\u0000", "sentence2": "b", "score": {i}}}\n' for i in range(5)), "".join(f'{{"sentence1": "a{i}", "sentence2": "b", "score": true}}\n' for i in range(5)), "".join(f'{{"sentence1": "a{i}", "sentence2": "b", "score": -{i}e307}}\n' for i in range(5)), "NaN\n" * 5,
    "[" + ",".join(['{"sentence1": "a", "sentence2": "b", "score": 1}'] * 5) + "]garbage", '{"sentence1": ["a"], "sentence2": ["b"], "score": [1]}', "[null, [], {}]", '{"sentence1": "a",' * 50_000, "".join(f'{{"sentence1": "a{i}", "sentence2": "b", "score": 1{"0" * 5_000}}}\n' for i in range(5)),
    "".join(f'{{"id": [{i}], "sentence1": "a", "sentence2": "b", "score": {i}}}\n' for i in range(5)), '{"sentence1": "a", "sentence2": "b", "score": 1}' * 5, "[" + ",".join(['{"sentence1": "a", "sentence2": "b", "score": 1}'] * 5) + "]\n[]\n", '{"data": [{"sentence1": "a"}]}\n', "\x1e" + '{"sentence1": "a", "sentence2": "b", "score": 1}\n' * 5,
    "".join(json.dumps({"sentence1": f"a{i}", "sentence2": "b", "score": i, **{f"k{j}": j for j in range(3_000)}}) + "\n" for i in range(5)), "// comment\n" + '{"sentence1": "a"}\n', "'" + "\n", '{"sentence1": "' + "\\u0061" * 100_000 + '", "sentence2": "b", "score": 1}\n',
)  # fmt: skip


def forms(sound: Sound, folder: Path, rng: Random) -> list[str]:
    content, endings = rng.choice(((_CSV, ("csv", "tsv", "txt")), (_JSON, ("jsonl", "json", "ndjson"))))
    path = folder / f"pairs.{rng.choice(endings[:2])}"
    code = rng.choice(("utf-8",) * 6 + ("utf-16", "utf-16-be", "utf-32", "utf-7", "cp037", "gb18030"))
    path.write_bytes(rng.choice(content).encode(code, "replace"))
    task = rng.choice(
        (
            (),
            (),
            ("--shuffle",),
            ("--samples", "3", "--shuffle"),
            ("--cluster", "sentence2"),
        )
    )
    return eval_line(sound.root / "static", "--dataset", path, *task)


def packed(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """Compressed, sparse, of another kind, or a table that Arrow wrote in an unusual way."""
    rows = (sound.root / "pairs.jsonl").read_bytes()
    kind = rng.choice(
        (
            "gz2",
            "multi",
            "cut",
            "bz2",
            "xz",
            "zip",
            "sparse",
            "feather",
            "groups",
            "nested",
            "wide",
            "codec",
            "zero",
            "null",
            "large",
            "tar",
        )
    )
    path = folder / "pairs.jsonl.gz"
    table = pyarrow.parquet.read_table(sound.root / "pairs.parquet")
    if kind == "gz2":
        path.write_bytes(gzip.compress(gzip.compress(rows)))
    elif kind == "multi":
        path.write_bytes(gzip.compress(rows) + rng.choice((gzip.compress(b""), b"garbage", bytes(1_000))))
    elif kind == "cut":
        path.write_bytes(gzip.compress(rows)[: -rng.choice((1, 4, 8, 20))])
    elif kind in ("bz2", "xz"):
        path = folder / f"pairs.jsonl.{kind}"
        path.write_bytes((bz2.compress if kind == "bz2" else lzma.compress)(rows))
    elif kind in ("zip", "tar"):
        path = folder / f"pairs.{rng.choice(('zip', 'jsonl', 'csv'))}"
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("../../x", rows)
        path.write_bytes(buffer.getvalue())
    elif kind == "sparse":
        path = folder / f"pairs.{rng.choice(('jsonl', 'csv', 'json', 'tsv', 'parquet', 'txt'))}"
        path.write_bytes(rows)
        os.truncate(path, rng.choice((10**8, 10**10, 2 * 10**11)))
    elif kind == "feather":
        path = folder / "pairs.parquet"
        pyarrow.feather.write_feather(table, str(path))
    else:
        path = folder / "pairs.parquet"
        options: dict[str, object] = {
            "groups": {"row_group_size": 1},
            "codec": {"compression": rng.choice(("zstd", "brotli", "lz4", "gzip"))},
        }.get(kind, {})
        if kind == "nested":
            table = table.append_column("deep", pyarrow.array([[[[{"a": [1]}]]]] * len(table)))
        elif kind == "wide":
            table = pyarrow.table(
                {
                    **{name: table[name] for name in table.column_names},
                    **{f"c{i}": [0] * len(table) for i in range(rng.choice((500, 11_000)))},
                }
            )
        elif kind == "zero":
            table = table.slice(0, 0)
        elif kind == "null":
            table = table.set_column(rng.randrange(4), rng.choice(table.column_names), pyarrow.nulls(len(table)))
        elif kind == "large":
            table = table.set_column(
                1,
                "sentence1",
                table["sentence1"].cast(rng.choice((pyarrow.large_string(), pyarrow.string_view(), pyarrow.binary()))),
            )
        pyarrow.parquet.write_table(table, path, **options)
    return eval_line(sound.root / "static", "--dataset", path)


def folders(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """BEIR folders: grades, ids and places that are odd."""
    place = sound.copy("beir", folder)
    kind = rng.choice(("grades", "ids", "twice", "split", "gz", "links", "absent", "columns", "empty", "title"))
    qrels = place / "qrels" / "test.tsv"
    head = "query-id\tcorpus-id\tscore\n"
    more: tuple[str, ...] = ()
    if kind == "grades":
        grade = rng.choice(("-1", "0", "1e300", "nan", "1.5", "9" * 400, "²", "", "true", "10000000", "0x1"))
        qrels.write_text(head + "".join(f"q{i}\td{i}\t{grade if i % 2 else 1}\n" for i in range(12)))
    elif kind == "ids":
        odd = rng.choice(("\x1b[31m", "\u202e", "a" * 5_000, "a b", "-1", "None", "q0"))
        qrels.write_text(head + "".join(f"{odd}\td{i}\t1\n" for i in range(12)))
    elif kind == "twice":
        name = rng.choice(("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"))
        (place / name).write_bytes((place / name).read_bytes() * 2)
    elif kind == "split":
        more = (
            "--split",
            rng.choice(("../../x", "", "*", "dev", "\x1b[31m", "a" * 300, "/etc/passwd", ".", "test.tsv")),
        )
    elif kind == "gz":
        (place / "corpus.jsonl.gz").write_bytes(gzip.compress((place / "corpus.jsonl").read_bytes()))
        (place / "corpus.jsonl").unlink()
    elif kind == "links":
        name = rng.choice(("corpus.jsonl", "queries.jsonl", "qrels"))
        target = place / name
        os.rename(target, folder / "moved")
        os.symlink(rng.choice(("/dev/zero", "/proc/self/environ", str(place), str(folder / "moved"), name)), target)
    elif kind == "absent":
        os.rename(place / rng.choice(("corpus.jsonl", "queries.jsonl", "qrels")), folder / "gone")
    elif kind == "columns":
        qrels.write_text(
            rng.choice(
                (
                    "a\tb\nq0\td0\n",
                    "q0 0 d0 1\n" * 3,
                    "q0,d0,1\n" * 3,
                    "\t\t\n" * 5,
                    "query-id\tscore\tcorpus-id\nq0\td0\t1\n",
                    head,
                )
            )
        )
    elif kind == "empty":
        (place / rng.choice(("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"))).write_bytes(b"")
    else:
        rows = [
            json.dumps(
                {
                    "_id": f"d{i}",
                    "title": rng.choice((None, 1, [], "\x00", "t")),
                    "text": rng.choice(("", None, 1, "a")),
                }
            )
            for i in range(12)
        ]
        (place / "corpus.jsonl").write_text("\n".join(rows))
    if rng.random() < 0.3:
        return [
            "diagnose",
            str(sound.root / "static"),
            "--dataset",
            str(place),
            "--no-store",
            *more,
        ]
    model = rng.choice(("bm25", str(sound.root / "static"), f"hybrid:{sound.root / 'static'}+bm25"))
    return eval_line(model, "--task", "retrieval", "--dataset", place, *more)
