"""What every `calipers` command puts out, kept and compared: for a refactoring that must change no number.

    python -m tests.support.gold capture SOURCE_TREE OUT_DIR [--old OLD_DIR] [--only WORD] [--jobs N] [--fresh]
    python -m tests.support.gold compare OLD_DIR NEW_DIR [--only WORD] [--all]

`capture` runs the cases of TABLE with the `calipers` of SOURCE_TREE/src. For each case it keeps the exit code, stdout,
stderr, every file that was written, and the runs that were stored with all their outcomes. Capture the old code first.
Capture the new code with `--old OLD_DIR`: it then gets the same inputs, and the scenes `old-…` read the store, the
trust file and the build that the old code wrote. `compare` ends with exit code 1 if anything differs that must not:

- exit codes, the set of files, the keys of JSON at every path, the length of lists;
- values of JSON: numbers to 1e-9, strings exactly (ids, labels, names, fingerprints of data);
- in text, Markdown, JUnit and HTML: the sequence of numbers and labels; in help texts also the flags.

Sentences may differ and are listed as wording: values of JSON below WORDING, and text whose numbers are equal. Ignored
is what differs in every run (VOLATILE in JSON, MASKS in text) and what depends on the code by design (CODE_DEPENDENT).

Data and models come from CALIPERS_DATA, CALIPERS_MODELS and CALIPERS_WEIGHTS. Nothing of calipers is imported here: the
code under test runs in processes of its own. All cases run in one folder with a fixed name, since paths appear in what
is printed; a second capture waits until the first has ended.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import fcntl
import hashlib
import html
import itertools
import json
import math
import os
import pty
import queue
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.processes import Request, Starter, helper, start_fresh

WORK = Path(tempfile.gettempdir()) / "calipers-gold"

# --- the cases -----------------------------------------------------------------------------------------------------
#
# A scene (`= NAME`) is a working folder with a store; its cases run in this order. A case is the expected exit code, a
# name and a command line, which continues on indented lines. {out} is the name of the case, {run1} the id of the oldest
# run in the store; the other names are those of PLACES. `tty` in front gives the command a terminal for its stdout,
# `python` runs a script in place of the command.

PLACES = {
    "in": "../in",
    "data": "../data",
    "potion": "../models/potion-base-4m-int8",
    "albert": "../models/rxnmapper-albert-mlm-smiles",
    "roberta": "../models/sapiens-roberta-mlm-antibody-vh",
    "reranker": "../models/ms-marco-MiniLM-L12-v2-dequant",
    "minilm": "../weights/all-MiniLM-L6-v2",
    "quint8": "../weights/all-MiniLM-L6-v2-quint8",
    "bge": "../weights/bge-small-en-v1.5-int8",
    "reranker8": "../weights/ms-marco-MiniLM-L12-v2-int8",
    "pairs": "../in/pairs.jsonl",
    "shop": "../in/shop",
    "tiny": "../in/tiny",
    "noisy": "../in/potion-noisy",
}

TABLE = """
= build
0 int8-dynamic  build {tiny} --precision int8-dynamic --calibration {in}/words.txt -o built
0 attribute     attribute {tiny} --task fill-mask --precision int8-dynamic --dataset {in}/words.txt --samples 8
                  --calibration {in}/words.txt --budget 2 --resamples 500 --work built -o {out}.json
0 w8a8          build {tiny} --precision w8a8 --calibration {in}/words.txt -o built --keep-stages --json
0 again         build {tiny} --precision w8a8 --calibration {in}/words.txt -o built
0 w8a16         build {tiny} --precision w8a16 --calibration {in}/words.txt --calibration-method percentile
                  --percentile 99.9 --per-channel --symmetric -o built
0 recipe        build {tiny} --recipe {in}/recipe.yaml --calibration {in}/words.txt --exclude op:Softmax --unsigned
                  --reduce-range --force -o built
0 fp16          build {tiny} --precision fp16 -o built
0 int4          build {tiny} --precision int4 --block-size 16 -o built
0 eval-onnx     eval -m built --file-name model_q4.onnx --task fill-mask --dataset {in}/words.txt --word-level
                  -o {out}.json
0 given         build {tiny} --precision fp32 --stage exported=built/exported/model.onnx -o given
0 eval-shortcut eval -m given --task fill-mask --dataset {in}/words.txt --pll word-l2r --tokens 100
                  --window --max-length 8 -o {out}.json
5 compare       compare given built/model_w8a16.onnx built/model_q4.onnx --task fill-mask --dataset {in}/words.txt
                  --samples 12 --threshold pseudo_perplexity=1%,2% -o {out}.json --markdown {out}.md
1 unlabelled    compare {tiny} built/model_q4.onnx --unlabelled --task fill-mask --dataset {in}/words.txt -o {out}.json
1 dead-graph    compare built/exported {in}/dead-onnx --dataset {in}/word-pairs.jsonl --pooling mean -o {out}.json
                  --junit {out}.xml

= attribute
1 plain         attribute {tiny} --precision w8a8 --dataset {in}/word-pairs.jsonl --calibration-samples 16 --budget 6
                  --resamples 1000 --work work --samples 40 --static-shape 1x16 --pooling mean -o {out}.json
0 fix           attribute {tiny} --recipe {in}/unsigned.yaml --dataset {in}/word-pairs.jsonl --calibration-samples 16
                  --budget 20 --resamples 1000 --work work --samples 40 --static-shape 1x16 --fix --pooling mean
                  --recipe-out fix.yaml -o {out}.json
1 given         attribute {tiny} --precision w8a8 --dataset {in}/word-pairs.jsonl --samples 40 --budget 2 --no-optimize
                  --resamples 1000 --stage exported=work/exported/model.onnx --static-shape 1x16
                  --stage quantized=work/quantized-w8a8/model.onnx --pooling mean --json
0 build-fix     build {tiny} --recipe fix.yaml --calibration {in}/words.txt --static-shape 1x16
                  --pooling mean -o work

= diagnose-layers
0 all           diagnose {potion} --dataset {shop} --html {out}.html -o {out}.json
5 baseline      diagnose {noisy} --dataset {shop} --baseline {potion} --html {out}.html -o {out}.json --resamples 2000
0 never         diagnose {noisy} --dataset {shop} --baseline {potion} --layers retrieval --fail-on never --json
                  --samples 20 --seed 3 --resamples 500
1 contrastive   diagnose {noisy} --baseline {potion} --dataset {shop} --adaptation contrastive --sts {pairs}
                  --html {out}.html -o {out}.json --resamples 2000

= diagnose-files
0 files         diagnose {potion} --corpus {shop}/corpus.jsonl --queries {shop}/queries.jsonl --k 5 --codec binary
                  --qrels {shop}/qrels/test.tsv --relevant-from 2 --terms {in}/terms.txt --entities {in}/terms.txt
                  --paraphrases {in}/paraphrases.txt --out-of-domain {in}/foreign.txt --attributes {in}/attributes.yaml
                  --words space --permutations 2 --texts 20 --examples 2 --pairs {pairs} --html {out}.html -o {out}.json
0 rerank        diagnose {potion} --dataset {in}/few --layers retrieval --rerank {reranker8} --rerank-k 4
                  -o {out}.json
0 esci          diagnose {potion} --dataset {data}/esci-sample/esci.csv --layers retrieval,attributes -o {out}.json
0 pairs         diagnose {potion} --pairs {pairs} --pairs-above 4 --exact --layers geometry -o {out}.json
0 corpus        diagnose {potion} --corpus {in}/foreign.txt --layers geometry --no-store --no-cache
0 http          diagnose {endpoint}/embed --dataset {in}/few --layers geometry,retrieval --no-cache -o {out}.json
0 japanese      diagnose {endpoint}/embed --corpus {in}/japanese.txt --layers geometry --words phrases --texts 10
                  --no-cache -o {out}.json
0 vectors       diagnose {in}/few.parquet --dataset {in}/few --layers certainty,geometry --codec int4 --json

= diagnose-mlm
5 mlm           diagnose {in}/tiny-tuned --baseline {tiny} --dataset {in}/park --adaptation mlm --resamples 500
                  --sts {in}/word-pairs.jsonl --entities {in}/park-terms.txt --texts 20 --html {out}.html -o {out}.json
                  --pooling mean
0 head          diagnose {in}/tiny-plain --dataset {in}/park --layers knowledge --mlm-head {tiny}
                  --entities {in}/park-terms.txt -o {out}.json

= demo
0 demo          demo
0 list          runs list

= similarity-torch
0 options       eval -m torch:{minilm} --dataset {pairs} --samples 24 --pooling cls --no-normalize --max-length 12
                  --batch-size 4 --dtype bfloat16 --threads 1 --prompt 'query: ' --json
5 quantised     compare {minilm} {quint8} --dataset {pairs} --samples 24 --junit {out}.xml --markdown {out}.md
                  -o {out}.json
0 latest        compare {run1} {run2} latest --metric all -o {out}.json
0 show          runs show {run2}

= similarity
0 static        eval -m {potion} --dataset {pairs} -o {out}.json
0 csv           eval -m {potion} --dataset {in}/pairs.csv --samples 20 --seed 7 --json
                  --column input_column_1=left input_column_2=right score_column=gold
0 tsv           eval -m static:{potion} --dataset {in}/pairs.tsv --no-shuffle --samples 20 --confidence 0.9
                  --resamples 500 --max-length 16 --no-normalize --prompt 'query: ' --model-id mine -o {out}.json
0 split         eval -m {potion} --dataset {in}/splits --split dev --task feature-extraction -o {out}.json
0 terminal      tty eval -m {potion} --dataset {pairs} --no-store
0 vectors       eval -m {in}/vectors.npy --dataset {pairs} -o {out}.json
0 vectors-ids   eval -m vectors:{in}/by-id.npy --dataset {in}/ids.jsonl -o {out}.json
0 parquet       eval -m {in}/vectors.parquet --dataset {in}/pairs.parquet --samples 1000 -o {out}.json
0 openai        eval -m {endpoint}/v1/embeddings --dataset {pairs} --samples 20 --model-id e5 -o {out}.json
0 tei           eval -m {endpoint}/embed --dataset {pairs} --samples 20 --normalize --batch-size 7 -o {out}.json
0 bare          eval -m {endpoint} --dataset {pairs} --samples 20 --json
0 onnx          eval -m {quint8} --dataset {pairs} --samples 24 -o {out}.json
0 onnx-file     eval -m {quint8}/model_quantized.onnx --model-id {minilm} --dataset {pairs} --samples 24 --ep cpu
                  --batch-tokens 256 --threads 1 --graph-output last_hidden_state -o {out}.json
0 bge           eval -m {bge} --dataset {pairs} --samples 16 -o {out}.json
0 blank         eval -m {potion} --dataset {in}/blank.csv -o {out}.json

= fill-mask
0 roberta       eval -m {roberta} --task fill-mask --dataset {data}/antibodies/vh.txt --max-length 60 -o {out}.json
0 albert        eval -m {albert} --task fill-mask --dataset {data}/smiles/reactions.txt --tokens 100 -o {out}.json
0 show          runs show latest --examples 2
0 report        report {run1} --format model-index -o {out}.md

= ranking
0 reranker      eval -m {reranker} --task reranking --dataset {in}/dl19.jsonl --relevant-from 2 --max-length 64
                  -o {out}.json
0 compare       compare {reranker} {reranker8} --task reranking --dataset {in}/dl19.jsonl --relevant-from 2
                  --max-length 64 -o {out}.json
0 classifier    eval -m {in}/classifier --task pair-classification --dataset {in}/labelled.jsonl -o {out}.json
                  --label-mapping same=2,near=1,other=0

= ranking-onnx
0 qrels         eval -m {reranker8} --task text-ranking --dataset {in}/dl19.jsonl --qrels {in}/dl19.txt --at-k 5
                  --max-length 64 -o {out}.json
0 compat        eval -m {reranker8} --task reranking --dataset {in}/positives.jsonl --compat sentence-transformers
                  --no-always-rerank-positives --max-length 64 -o {out}.json
0 http          eval -m {endpoint}/rerank --task reranking --dataset {in}/dl19.jsonl -o {out}.json
1 unlabelled    compare {endpoint}/rerank {reranker8} --task reranking --dataset {in}/dl19.jsonl --unlabelled --at-k 3
                  -o {out}.json
0 nanobeir      eval -m {reranker8} --task nanobeir --dataset {in}/nano --sets msmarco,nfcorpus --rerank-k 12 --at-k 5
                  -o {out}.json
0 mrpc          eval -m {reranker8} --task pair-classification --dataset {in}/mrpc.jsonl -o {out}.json
0 correlation   eval -m {reranker8} --task pair-correlation --dataset {pairs} --samples 16 -o {out}.json
0 retrieval     eval -m {potion} --task retrieval --dataset {shop} --run-out {out}.run -o {out}.json
0 bm25          eval -m bm25 --task retrieval --dataset {shop} --top-k 20 -o {out}.json
0 bm25-options  eval -m bm25:k1=0.9,b=0.4 --task retrieval --dataset {shop} --samples 10 --json
0 dot           eval -m {potion} --task retrieval --dataset {shop} --similarity dot --no-normalize
                  --query-prompt 'query: ' --passage-prompt 'passage: ' --top-k 15 -o {out}.json
0 two-stages    eval -m {potion} --task retrieval --dataset {in}/few --rerank {reranker8} --rerank-k 5 --max-length 64
                  -o {out}.json
0 http-search   eval -m {endpoint}/v1 --task retrieval --dataset {in}/few -o {out}.json
0 stages        compare {potion} bm25 --task retrieval --dataset {shop} --samples 12 -o {out}.json
0 mteb          report {run7} --format mteb --mteb-task SciFact -o {out}.json
0 markdown      report {run1} {run5} {run7} --format markdown
0 show          runs show {run7} --json --examples 2

= compare
0 near          compare {potion} {in}/potion-near --dataset {pairs} --junit {out}.xml --markdown {out}.md -o {out}.json
1 regression    compare {potion} {noisy} --dataset {pairs} --junit {out}.xml --markdown {out}.md -o {out}.json
0 at-risk       compare {potion} {noisy} --dataset {pairs} --threshold cosine_spearman=0.1,99 --worst 3 -o {out}.json
1 fail-on       compare {potion} {noisy} --dataset {pairs} --threshold cosine_spearman=0.1,99 --fail-on at-risk
                  --junit {out}.xml --json
5 inconclusive  compare {potion} {noisy} --dataset {pairs} --samples 8 --junit {out}.xml --markdown {out}.md
                  -o {out}.json
1 undecided     compare {potion} {noisy} --dataset {pairs} --samples 8 --fail-on inconclusive --fresh
1 invalid       compare {in}/vectors.npy {in}/nan.npy {in}/other.npy --dataset {pairs} --junit {out}.xml
                  --markdown {out}.md -o {out}.json
1 config        compare {potion} {noisy} {in}/potion-near --dataset {pairs} --config {in}/config.yaml --metric all
                  --markdown {out}.md -o {out}.json
1 terminal      tty compare {potion} {noisy} --dataset {pairs}
1 metric        compare {potion} {noisy} --dataset {pairs} --metric dot_pearson --confidence 0.8 --resamples 300 --json
0 stored        compare {run1} {run2} -o {out}.json
1 mixed         compare {run1} {noisy} --json
1 unlabelled    compare {potion} {noisy} --unlabelled --dataset {in}/texts.txt --junit {out}.xml -o {out}.json
5 retrieval     compare {potion} {noisy} --task retrieval --dataset {shop} --markdown {out}.md -o {out}.json
0 bm25          compare {potion} bm25 --task retrieval --dataset {shop} --metric recall@10 --json
                  --threshold recall@10=90%,99%
0 http          compare {endpoint}/embed {endpoint}/v1 --dataset {pairs} --samples 20 --json

= trust
0 plain         trust {potion} --corpus {shop} 'bluetooth speaker' 'asdf qwer zxcv'
0 json          trust {potion} --corpus {in}/foreign.txt --queries {in}/texts.txt --k 3 --codec binary --error 0.2
                  --json 'how long must rice be cooked'
0 calibrate     trust {potion} --corpus {shop} --calibrate {shop}/qrels/test.tsv --save {out}.trust --json 'red mouse'
0 text          trust {potion} --corpus {shop} --calibrate {shop}/qrels/test.tsv --map isotonic --codec fp16
                  --out-of-domain {in}/foreign.txt --save {out}.trust --seed 5 'red mouse'
0 load          trust {potion} --corpus {shop} --load calibrate.trust 'bluetooth speaker' 'laptop' --json
0 load-text     trust {potion} --corpus {shop} --load text.trust 'bluetooth speaker' 'laptop' --no-cache
0 other-corpus  trust {potion} --corpus {in}/few --load calibrate.trust 'laptop'
0 pq            trust {potion} --corpus {shop} --codec pq --save {out}.trust --query-prompt 'q: ' --passage-prompt 'p: '
0 vectors       trust {in}/few.parquet --corpus {in}/few --calibrate {in}/few/qrels/test.tsv --json
2 other-model   trust {noisy} --corpus {shop} --load calibrate.trust 'laptop'

= runs
0 none          runs list
0 potion        eval -m {potion} --dataset {pairs} --model-id minishlab/potion-base-4M
0 noisy         eval -m {noisy} --dataset {pairs}
0 retrieval     eval -m {potion} --task retrieval --dataset {shop}
0 reranking     eval -m {reranker8} --task reranking --dataset {in}/dl19.jsonl --relevant-from 2 --max-length 64
0 classes       eval -m {reranker8} --task pair-classification --dataset {in}/mrpc.jsonl
0 import        runs import {in}/mteb/o__before
0 import-json   runs import {in}/mteb/o__after --json
0 layer         diagnose {potion} --dataset {shop} --layers geometry,retrieval
0 trust         trust {potion} --corpus {shop} --calibrate {shop}/qrels/test.tsv --save old.trust
0 list          runs list
0 list-json     runs list --json --limit 3
0 list-terminal tty runs list
0 show          runs show {run1} --examples 3
0 show-json     runs show {run2} --json --examples 3
0 show-layer    runs show latest
0 report        report {run1}
0 report-json   report {run1} {run3} --format json
0 report-mteb   report {run1} --format mteb --mteb-task STSBenchmark
0 report-folder report {run1} --format mteb --mteb-task STSBenchmark -o .
0 report-card   report {run1} --format model-index --mteb-task STSBenchmark
0 report-md     report {run1} {run2} {run3} {run4} --format markdown -o {out}.md
1 compare       compare {run1} {run2} -o {out}.json
0 doctor        doctor
0 tasks         tasks
0 task-1        tasks sentence-similarity
0 task-2        tasks fill-mask
0 task-3        tasks reranking
0 task-4        tasks nanobeir
0 task-5        tasks retrieval
0 task-6        tasks pair-classification
0 task-7        tasks pair-correlation

= runs-rm
0 first         eval -m {potion} --dataset {pairs} --samples 10
0 second        eval -m {potion} --dataset {pairs} --samples 12
0 third         eval -m {potion} --dataset {pairs} --samples 14 --store store --json
0 rm            runs rm latest {run1}
0 left          runs list --json
0 elsewhere     eval -m {potion} --dataset {pairs} --samples 10 --store other --json
0 list-other    runs list --store other --json
0 import        runs import {in}/mteb --task Task1 --task Task2 --common --json

= api
0 evaluate      python {in}/api.py {potion} {pairs}
0 evaluators    python {in}/evaluators.py {in}/ranker

= help
0 version       --version
0 all           --help
2 nothing
0 eval          eval --help
0 compare       compare --help
0 build         build --help
0 attribute     attribute --help
0 diagnose      diagnose --help
0 trust         trust --help
0 report        report --help
0 runs          runs --help
0 runs-list     runs list --help
0 runs-show     runs show --help
0 runs-import   runs import --help
0 runs-rm       runs rm --help
0 tasks         tasks --help
0 doctor        doctor --help
0 demo          demo --help

= bad-data
2 no-file       eval -m {in}/vectors.npy --dataset none.jsonl
2 no-hub        eval -m {in}/vectors.npy --dataset no/data
2 default-hub   eval -m {in}/vectors.npy
2 column        eval -m {in}/vectors.npy --dataset {pairs} --column score_column=rating
2 column-key    eval -m {in}/vectors.npy --dataset {pairs} --column nonsense=score
2 column-form   eval -m {in}/vectors.npy --dataset {pairs} --column score
2 not-json      eval -m {in}/vectors.npy --dataset {in}/bad/not-json.jsonl
2 nan-score     eval -m {in}/vectors.npy --dataset {in}/bad/nan-score.jsonl
2 text-score    eval -m {in}/vectors.npy --dataset {in}/bad/text-score.jsonl
2 duplicate-ids eval -m {in}/vectors.npy --dataset {in}/bad/duplicate-ids.jsonl
2 constant-gold eval -m {in}/vectors.npy --dataset {in}/bad/constant-gold.jsonl
2 two-rows      eval -m {in}/vectors.npy --dataset {in}/bad/two-rows.jsonl
2 blank         eval -m {in}/vectors.npy --dataset {in}/bad/blank.jsonl
2 empty         eval -m {in}/vectors.npy --dataset {in}/bad/empty.jsonl
2 no-parquet    eval -m {in}/vectors.npy --dataset {in}/bad/no.parquet
2 no-qrels      eval -m {potion} --task retrieval --dataset {in}/bad
2 labels        eval -m {reranker8} --task pair-classification --dataset {in}/labelled.jsonl
2 no-relevance  eval -m {reranker8} --task reranking --dataset {in}/bad/no-relevance.jsonl
4 nan           eval -m {in}/nan.npy --dataset {pairs}
4 zeros         eval -m {in}/zero.npy --dataset {pairs}
4 constant      eval -m {in}/dead-onnx --dataset {pairs}
4 unseen        eval -m {in}/vectors.npy --dataset {in}/ids.jsonl
4 http-nan      eval -m {endpoint}/nan/embed --dataset {pairs} --samples 8
3 http-refusal  eval -m {endpoint}/refuse/embed --dataset {pairs} --samples 8
3 no-model      eval -m none --dataset {pairs}
3 no-onnx       eval -m none.onnx --dataset {pairs}
3 no-hub-model  eval -m no/model --dataset {pairs}
3 not-a-model   eval -m {pairs} --dataset {pairs}
3 empty-folder  eval -m {in}/bad --dataset {pairs}
3 cut-onnx      eval -m {in}/bad/cut --dataset {pairs}
3 no-tokenizer  eval -m {in}/bad/bare --dataset {pairs}
3 pickled       eval -m {in}/bad/pickled --dataset {pairs}
4 no-vector     compare {in}/vectors.npy {in}/by-id.npy --dataset {pairs}

= bad-flags
2 task          eval -m {in}/vectors.npy --dataset {pairs} --task juggling
2 samples       eval -m {in}/vectors.npy --dataset {pairs} --samples 0
2 samples-text  eval -m {in}/vectors.npy --dataset {pairs} --samples some
2 confidence    eval -m {in}/vectors.npy --dataset {pairs} --confidence 95
2 resamples     eval -m {in}/vectors.npy --dataset {pairs} --resamples 0
2 pooling       eval -m {in}/vectors.npy --dataset {pairs} --pooling sum
2 unknown-flag  eval -m {in}/vectors.npy --dataset {pairs} --modle x
2 no-model      eval --dataset {pairs}
2 other-task    eval -m {in}/vectors.npy --dataset {pairs} --tokens 5
2 provider      eval -m {in}/dead-onnx --dataset {pairs} --ep nonsense
2 ep-static     eval -m {potion} --dataset {pairs} --ep cuda
2 max-length    eval -m {in}/dead-onnx --dataset {pairs} --max-length 1
2 graph-output  eval -m {in}/dead-onnx --dataset {pairs} --graph-output none
2 budgets       eval -m {in}/vectors.npy --dataset {pairs} --batch-size 8 --batch-tokens 8
2 two-stores    eval -m {in}/vectors.npy --dataset {pairs} --store s --no-store
2 store-file    eval -m {in}/vectors.npy --dataset {pairs} --store {pairs}/store
2 output-there  eval -m {in}/vectors.npy --dataset {pairs} -o {pairs}
2 output-folder eval -m {in}/vectors.npy --dataset {pairs} -o no/out.json
2 command       measure
2 no-run        runs show 2020
2 rm            runs rm latest
2 report-run    report latest
2 mteb-task     report latest --mteb-task STSBenchmark
2 threshold     compare {potion} {noisy} --dataset {pairs} --threshold cosine_spearman=5
2 metric        compare {potion} {noisy} --dataset {pairs} --metric nonsense
2 one-side      compare {potion}
2 precision     build {tiny} --precision int2 -o built
2 no-precision  attribute {tiny} --dataset {pairs}
2 build-static  build {potion} --precision fp32 -o built
2 layers        diagnose {potion} --dataset {shop} --layers nonsense
2 k             diagnose {potion} --dataset {shop} --k 5000
2 no-corpus     diagnose {potion}
2 no-baseline   diagnose {potion} --dataset {shop} --adaptation mlm
2 mlm-head      diagnose {potion} --dataset {shop} --layers knowledge --mlm-head {tiny}
2 trust-nothing trust {potion} --corpus {shop}
2 trust-k       trust {potion} --corpus {shop} --k 1 laptop
2 trust-load    trust {potion} --corpus {shop} --load {pairs} laptop
2 trust-both    trust {potion} --corpus {shop} --load a --save b laptop
2 trust-blank   trust {potion} --corpus {shop} ' '
2 import        runs import {pairs}
"""

# What the new code must make of what the old code kept: a store, a trust file and a build of the scenes above.
OLD = ("old-store", "old-build")
OLD_TABLE = """
= old-store
0 list          runs list
0 list-json     runs list --json
0 show-1        runs show {run1} --examples 5
0 show-2        runs show {run2} --json --examples 5
0 show-3        runs show {run3} --json --examples 2
0 show-4        runs show {run4}
0 show-5        runs show {run5} --json --examples 2
0 show-6        runs show {run6}
0 show-7        runs show {run7} --json --examples 2
0 show-latest   runs show latest --json --examples 2
1 compare       compare {run1} {run2} --metric all --junit {out}.xml --markdown {out}.md -o {out}.json
5 compare-mteb  compare {run6} {run7} -o {out}.json
2 other-rows    compare {run1} {run3}
0 report        report {run1} {run2} {run3} {run4} {run5}
0 report-json   report {run1} {run3} --format json
0 report-mteb   report {run1} --format mteb --mteb-task STSBenchmark
0 report-card   report {run1} --format model-index --mteb-task STSBenchmark
0 trust         trust {potion} --corpus {shop} --load old.trust 'bluetooth speaker' 'asdf qwer zxcv'
0 trust-json    trust {potion} --corpus {shop} --load old.trust 'bluetooth speaker' 'asdf qwer zxcv' --json
0 rm            runs rm {run1}
0 left          runs list --json

= old-build
0 reused        build {tiny} --precision int4 --block-size 16 -o built --json
0 eval          eval -m built --task fill-mask --dataset {in}/words.txt -o {out}.json
"""


@dataclass(frozen=True)
class Case:
    scene: str
    name: str
    code: int  # the exit code that is expected
    line: str

    @property
    def place(self) -> Path:
        return Path("cases") / self.scene / self.name

    @property
    def writes(self) -> list[str]:
        """The files that the command is to make: what follows the flags that name one."""
        words = shlex.split(self.line.replace("{out}", self.name))
        flags = ("-o", "--output", "--junit", "--markdown", "--html", "--save", "--run-out", "--recipe-out")
        named = [file for flag, file in itertools.pairwise(words) if flag in flags]
        return [] if self.code not in (0, 1, 5) else named


def read_table(table: str) -> dict[str, list[Case]]:
    """Scene → its cases.

    >>> read_table("= a\\n0 b  eval\\n   -o x")
    {'a': [Case(scene='a', name='b', code=0, line='eval -o x')]}
    """
    scenes: dict[str, list[Case]] = {}
    for line in re.sub(r"\n +", " ", table).strip().splitlines():
        if line.startswith("= "):
            scene = line.removeprefix("= ")
            scenes[scene] = []
        elif line.strip():
            code, name, rest = (*line.split(maxsplit=2), "")[:3]
            scenes[scene].append(Case(scene, name, int(code), rest))
    return scenes


# --- the inputs ----------------------------------------------------------------------------------------------------

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [
    *("the", "a", "dog", "dogs", "cat", "cats", "child", "children", "run", "runs", "sleep", "sleeps", "see", "sees"),
    *("near", "far", "big", "small", "old", "young", "on", "in", "park", "house", "street", "garden", "read", "slow"),
    *("quick", "and", "or", "not", "boat", "tree", "hat", "red", "blue", "tall", "rain", "new"),
]
PIECES = ["##s", "##ing", "##er", "##ly", ".", ","]


def write_inputs(to: Path, data: Path, models: Path) -> None:
    """Everything that the cases read and that is no real model or data: parts of real data, and small models."""
    to.mkdir(parents=True)
    write_pairs(to, data)
    write_vectors(to)
    write_shop(to, data)
    write_rankings(to, data)
    write_words(to)
    write_noisy(to / "potion-noisy", models, scale=16.0)
    write_noisy(to / "potion-near", models, scale=0.05)
    write_tiny_models(to)
    write_bad(to)
    write_mteb(to / "mteb")
    for name, content in SMALL_FILES.items():
        (to / name).write_text(content, encoding="utf-8")


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def read_jsonl(path: Path, most: int) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for _, line in zip(range(most), file, strict=False)]


def write_pairs(to: Path, data: Path) -> None:
    """Scored pairs in every format."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = read_jsonl(data / "stsb" / "test.jsonl", 60)
    write_jsonl(to / "pairs.jsonl", rows)
    write_jsonl(to / "splits" / "dev.jsonl", rows[:30])
    write_jsonl(to / "splits" / "test.jsonl", rows[30:])
    pq.write_table(pa.Table.from_pylist(rows), to / "pairs.parquet")
    quoted = [[json.dumps(row["sentence1"]), json.dumps(row["sentence2"]), str(row["score"])] for row in rows]
    (to / "pairs.csv").write_text("\n".join(",".join(cells) for cells in [["left", "right", "gold"], *quoted]) + "\n")
    plain = [[row["sentence1"], row["sentence2"], str(row["score"])] for row in rows]
    header = ["sentence1", "sentence2", "score"]
    (to / "pairs.tsv").write_text("\n".join("\t".join(cells) for cells in [header, *plain]) + "\n")
    blank = [",".join(cells) for cells in [header, *quoted[:12], ['"  "', '"x"', "1"], ["", "", ""]]]
    (to / "blank.csv").write_text("\n".join(blank) + "\n")
    write_jsonl(to / "mrpc.jsonl", read_jsonl(data / "mrpc" / "test.jsonl", 20))
    numbered = [{"id": f"i{n}", "sentence1": f"one {n}", "sentence2": f"two {n}"} for n in range(20)]
    write_jsonl(to / "ids.jsonl", [{**row, "score": rows[n]["score"]} for n, row in enumerate(numbered)])
    for name, source in (("texts.txt", rows), ("japanese.txt", read_jsonl(data / "jsts" / "valid.jsonl", 30))):
        texts = dict.fromkeys(row["sentence1"] for row in source)
        (to / name).write_text("\n".join(texts) + "\n", encoding="utf-8")


def write_vectors(to: Path) -> None:
    """Vectors for the texts of the pairs: sound ones, others, some dead; and by the ids of rows."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = read_jsonl(to / "pairs.jsonl", 100)
    texts = list(dict.fromkeys(row[side] for row in rows for side in ("sentence1", "sentence2")))
    rng = np.random.default_rng(0)
    sound = rng.normal(size=(len(texts), 8)).astype(np.float32)
    dead, zero = sound.copy(), 0 * sound
    dead[3] = np.nan
    others = (sound + 0.8 * rng.normal(size=sound.shape)).astype(np.float32)
    for name, table in (("vectors", sound), ("other", others), ("nan", dead), ("zero", zero)):
        np.save(to / f"{name}.npy", table)
        (to / f"{name}.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    pq.write_table(pa.table({"text": texts, "vector": sound.tolist()}), to / "vectors.parquet")
    ids = [f"i{n}{side}" for n in range(20) for side in ("/1", "/2")]
    np.save(to / "by-id.npy", rng.normal(size=(len(ids), 6)).astype(np.float32))
    (to / "by-id.ids").write_text("\n".join(ids) + "\n", encoding="utf-8")


def write_shop(to: Path, data: Path) -> None:
    """A part of icecat as a BEIR folder, a smaller part of it, and vectors for the texts of that."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    judged: dict[str, dict[str, str]] = {}
    for line in (data / "icecat" / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, grade = line.split("\t")
        judged.setdefault(query, {})[document] = grade
    queries = [row for row in read_jsonl(data / "icecat" / "queries.jsonl", 10**6) if row["_id"] in judged]
    corpus = {row["_id"]: row for row in read_jsonl(data / "icecat" / "corpus.jsonl", 10**6)}
    write_beir(to / "shop", queries[:45], judged, corpus, each=9)
    write_beir(to / "few", queries[:12], judged, corpus, each=5)
    rows = [*read_jsonl(to / "few" / "corpus.jsonl", 10**6), *queries[:12]]
    texts = list(dict.fromkeys(f"{row.get('title', '')} {row.get('text', '')}".strip() for row in rows))
    vectors = np.random.default_rng(5).normal(size=(len(texts), 6)).astype(np.float32)
    pq.write_table(pa.table({"text": texts, "vector": vectors.tolist()}), to / "few.parquet")


def write_beir(
    folder: Path,
    queries: Sequence[Mapping[str, Any]],
    judged: Mapping[str, Mapping[str, str]],
    corpus: Mapping[str, Mapping[str, Any]],
    *,
    each: int,
) -> None:
    """The queries with the first `each` of their judged documents."""
    kept = {q["_id"]: [d for d in judged[q["_id"]] if d in corpus][:each] for q in queries}
    write_jsonl(folder / "queries.jsonl", queries)
    write_jsonl(folder / "corpus.jsonl", [corpus[d] for d in dict.fromkeys(d for ds in kept.values() for d in ds)])
    lines = [f"{query}\t{document}\t{judged[query][document]}" for query, ds in kept.items() for document in ds]
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(lines) + "\n")


def write_rankings(to: Path, data: Path) -> None:
    """Queries with graded documents, all judgements of them, the same with positives, and two sets like NanoBEIR's."""
    rows = read_jsonl(data / "trec-dl" / "dl19-bm25-top100.jsonl", 5)
    short = [{**row, "documents": row["documents"][:10]} for row in rows]
    write_jsonl(to / "dl19.jsonl", short)
    ids = {str(row["query_id"]) for row in rows}
    judged = (data / "trec-dl" / "qrels.dl19.txt").read_text(encoding="utf-8").splitlines()
    (to / "dl19.txt").write_text("\n".join(line for line in judged if line.split()[0] in ids) + "\n")
    lists = [[d["text"] for d in row["documents"]] for row in short]
    write_jsonl(
        to / "positives.jsonl",
        [
            {"query": row["query"], "positive": [texts[1], texts[9]], "documents": texts[:8]}
            for row, texts in zip(short, lists, strict=True)
        ],
    )
    write_nano(to / "nano")


def write_nano(folder: Path) -> None:
    """Three queries and thirty documents a set; query q2 has a positive that BM25 did not find."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    documents = [f"d{i}" for i in range(30)]
    lines = ["---", "configs:"]
    for config in ("corpus", "queries", "qrels", "bm25"):
        (folder / config).mkdir(parents=True)
        lines += [f"- config_name: {config}", "  data_files:"]
        for name in ("NanoMSMARCO", "NanoNFCorpus"):
            rng = np.random.default_rng(len(name))
            orders = [rng.permutation(documents)[:20].tolist() for _ in range(3)]
            words = {key: " ".join(rng.choice(WORDS, size=6)) for key in (*documents, "q0", "q1", "q2")}
            missed = next(d for d in documents if d not in orders[2])
            rows = {
                "corpus": [{"_id": d, "text": f"{words[d]} {d}"} for d in documents],
                "queries": [{"_id": f"q{i}", "text": words[f"q{i}"]} for i in range(3)],
                "qrels": [{"query-id": f"q{i}", "corpus-id": d} for i in range(3) for d in orders[i][i : 9 : i + 2]]
                + [{"query-id": "q2", "corpus-id": missed}],
                "bm25": [{"query-id": f"q{i}", "corpus-ids": orders[i]} for i in range(3)],
            }[config]
            pq.write_table(pa.Table.from_pylist(rows), folder / config / f"{name}.parquet")
            lines += [f"  - split: {name}", f"    path: {config}/{name}.parquet"]
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]), encoding="utf-8")


def write_words(to: Path) -> None:
    """Texts of the few words that the tiny models know; a search among them; pairs with labels."""
    import numpy as np

    rng = np.random.default_rng(3)
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(4, 12))) for _ in range(60)]
    (to / "words.txt").write_text("\n".join(f"{text} ." for text in texts[:24]) + "\n")
    corpus = {f"d{i}": {"_id": f"d{i}", "text": text} for i, text in enumerate(texts)}
    asked = [(f"q{i}", f"d{2 * i}", texts[2 * i].split()) for i in range(24)]
    queries = [{"_id": query, "text": " ".join(words[:3]), "count": i + 1} for i, (query, _, words) in enumerate(asked)]
    also = {query: [d for d, row in corpus.items() if words[0] in row["text"].split()] for query, _, words in asked}
    judged = {query: dict.fromkeys([document, *also[query]], "1") for query, document, _ in asked}
    write_beir(to / "park", queries, judged, corpus, each=6)
    labels = ("same", "near", "other")
    halves = zip(texts[:30], texts[30:], strict=True)
    pairs = [{"sentence1": a, "sentence2": b, "label": labels[i % 3]} for i, (a, b) in enumerate(halves)]
    write_jsonl(to / "labelled.jsonl", pairs)


def write_noisy(folder: Path, models: Path, *, scale: float) -> None:
    """The static model with noise on its whole numbers."""
    import numpy as np
    from safetensors.numpy import load_file, save_file

    source = models / "potion-base-4m-int8"
    folder.mkdir()
    for file in source.glob("*.json"):
        shutil.copyfile(file, folder / file.name)
    table = load_file(source / "model.safetensors")["embeddings"]
    noise = np.rint(np.random.default_rng(1).normal(scale=scale, size=table.shape))
    noisy = np.clip(table + noise, -127, 127).astype(np.int8)
    save_file({"embeddings": noisy}, folder / "model.safetensors")


def write_tiny_models(to: Path) -> None:
    """Two layers of BERT with random weights: with an MLM head, the same with noise, without a head, as a ranker and as
    a classifier of three classes; and pairs whose gold scores are the cosines of the first of them."""
    import torch
    import transformers

    size = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    shape = {**size, "vocab_size": 64, "max_position_embeddings": 66, "initializer_range": 0.15, "pad_token_id": 0}
    names = dict(enumerate(("other", "near", "same")))
    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "tiny": (transformers.BertForMaskedLM, {}),
        "tiny-tuned": (transformers.BertForMaskedLM, {}),
        "tiny-plain": (transformers.BertModel, {}),
        "ranker": (transformers.BertForSequenceClassification, {"num_labels": 1}),
        "classifier": (transformers.BertForSequenceClassification, {"id2label": names}),
    }
    for name, (kind, more) in kinds.items():
        torch.manual_seed(0)
        model = kind(transformers.BertConfig(**shape, **more)).eval()
        spread_weights(model, noise=0.1 if name == "tiny-tuned" else 0.0)
        model.save_pretrained(to / name)
        write_tokenizer(to / name)
    write_word_pairs(to)


def spread_weights(model: Any, *, noise: float) -> None:
    """Channels of different size and biases that are not zero, as trained models have them."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.Linear) and module.out_features > 1:
            module.weight.data *= torch.exp(0.4 * torch.randn(module.out_features, 1))
    for parameter in model.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=1.0 if parameter.mean() > 0.5 else 0.0, std=0.1)
    generator = torch.Generator().manual_seed(9)
    for parameter in model.parameters():
        parameter.data *= 1 + noise * torch.randn(parameter.shape, generator=generator)


def write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *WORDS, *PIECES])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {f"{token[1:-1].lower()}_token": token for token in SPECIAL}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **names).save_pretrained(folder)


def write_word_pairs(to: Path) -> None:
    import numpy as np
    import torch
    from transformers import AutoModel, AutoTokenizer

    rng = np.random.default_rng(4)
    sides = [[" ".join(rng.choice(WORDS, size=rng.integers(2, 14))) for _ in range(120)] for _ in range(2)]
    model, tokenizer = AutoModel.from_pretrained(to / "tiny").eval(), AutoTokenizer.from_pretrained(to / "tiny")
    vectors = []
    with torch.no_grad():
        for side in sides:
            rows = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0) for text in side]
            vectors.append(torch.nn.functional.normalize(torch.stack(rows), dim=1))
    gold = (vectors[0] * vectors[1]).sum(1).tolist()
    rows = [
        {"id": f"p{i}", "sentence1": a, "sentence2": b, "score": round(score, 4)}
        for i, (a, b, score) in enumerate(zip(*sides, gold, strict=True))
    ]
    write_jsonl(to / "word-pairs.jsonl", rows)


def write_bad(to: Path) -> None:
    """Data and models that are to be refused."""
    rows = read_jsonl(to / "pairs.jsonl", 6)
    bad = to / "bad"
    write_jsonl(bad / "nan-score.jsonl", [*rows, {**rows[0], "id": "x", "score": math.nan}])
    write_jsonl(bad / "text-score.jsonl", [*rows, {**rows[0], "id": "x", "score": "high"}])
    write_jsonl(bad / "duplicate-ids.jsonl", [*rows, rows[2]])
    write_jsonl(bad / "constant-gold.jsonl", [{**row, "score": 4} for row in rows])
    write_jsonl(bad / "two-rows.jsonl", rows[:2])
    write_jsonl(bad / "blank.jsonl", [{**row, "sentence1": " "} for row in rows])
    write_jsonl(bad / "empty.jsonl", [])
    write_jsonl(bad / "no-relevance.jsonl", [{"query": "q", "documents": ["a", "b"]}])
    (bad / "not-json.jsonl").write_text(json.dumps(rows[0]) + '\n{"id": \n')
    (bad / "no.parquet").write_text("no parquet")
    dead = write_constant_graph(to / "dead-onnx")
    shutil.copytree(to / "dead-onnx", bad / "cut")
    (bad / "cut" / "model.onnx").write_bytes(dead[: len(dead) // 2])
    (bad / "bare").mkdir()
    (bad / "bare" / "model.onnx").write_bytes(dead)
    (bad / "pickled").mkdir()
    (bad / "pickled" / "pytorch_model.bin").write_text("cos\nsystem\n")
    shutil.copyfile(to / "tiny" / "config.json", bad / "pickled" / "config.json")


def write_constant_graph(folder: Path) -> bytes:
    """An encoder that gives every token the same vector."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])
    out = helper.make_tensor_value_info("states", TensorProto.FLOAT, None)
    table = numpy_helper.from_array(np.ones((64, 2), np.float32), "table")
    node = helper.make_node("Gather", ["table", "input_ids"], ["states"])
    graph = helper.make_graph([node], "constant", [ids], [out], [table])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    write_tokenizer(folder)
    content: bytes = model.SerializeToString()
    (folder / "model.onnx").write_bytes(content)
    return content


def write_mteb(folder: Path) -> None:
    """Results of two models on twelve tasks, as mteb writes them."""
    for name, factor in (("o__before", 1.0), ("o__after", 0.9)):
        place = folder / name / "abc123"
        place.mkdir(parents=True)
        for i in range(12):
            row = {"hf_subset": "default", "languages": ["eng-Latn"], "main_score": factor * (0.4 + 0.03 * i)}
            facts = {"dataset_revision": "r1", "task_name": f"Task{i}", "mteb_version": "2.1.0", "evaluation_time": 1.5}
            (place / f"Task{i}.json").write_text(json.dumps({**facts, "scores": {"test": [row]}}))


SMALL_FILES = {
    "unsigned.yaml": "precision: w8a8\nunsigned: true\n",  # else the speed of a fix decides whether that is tried
    "recipe.yaml": "precision: w8a8\ncalibration: entropy\nper_channel: true\nexclude: ['op:LayerNormalization']\n",
    "config.yaml": "compare:\n  thresholds: {cosine_spearman: '1.0,2.0', dot_spearman: '1%,2%'}\n  confidence: 0.9\n"
    "  fail_on: at-risk\n  worst: 4\n  resamples: 700\n",
    "attributes.yaml": "colours:\n  lapis: {families: [blue], words: [lapis]}\nbrands:\n  acme: {names: [Acme]}\n",
    "terms.txt": "laptop\nbluetooth speaker\nnotebook\ncartridge\nthunderbolt\n",
    "park-terms.txt": "dog\ngarden\nchildren\nboat\n",
    "paraphrases.txt": "laptop\tnotebook computer\nmouse\tcomputer mouse\tpointing device\n",
    "foreign.txt": "how long must rice be cooked\nsymptoms of a broken rib\nnotice period of a tenant\n"
    "how to prune a rose\nbest time to visit Lisbon\nwho wrote the Odyssey\nhow do tides work\n"
    "recipe for onion soup\nwhat is a sonnet\n"
    "when was the printing press invented\nhow to tie a bowline\nwhich planets have rings\n",
    "api.py": """\
import json, sys
import calipers
options = calipers.DataOptions(samples=20)
result = calipers.evaluate(sys.argv[1], dataset=sys.argv[2], data_options=options, resamples=500)
print(json.dumps({
    "metrics": dict(result.metrics),
    "intervals": dict(result.intervals),
    "cosine": result.outcomes.columns["cosine"].tolist(),
}))
""",
    "evaluators.py": """\
import json, sys
from sentence_transformers import CrossEncoder
from calipers.interop import sentence_transformers as drop_in
model = CrossEncoder(sys.argv[1])
pairs = [["a dog runs", "the dogs run"], ["big house", "small house"], ["rain", "a red hat"], ["old tree", "new boat"]]
samples = [{"query": "dog", "positive": ["a dog runs"], "negative": ["a hat", "a cat"]},
           {"query": "boat", "positive": ["new boat", "old boat"], "documents": ["a cat", "old boat", "rain"]}]
print(json.dumps({
    "reranking": drop_in.CrossEncoderRerankingEvaluator(samples, name="x", write_csv=False)(model),
    "compat": drop_in.CrossEncoderRerankingEvaluator(samples, write_csv=False, compat="sentence-transformers")(model),
    "classes": drop_in.CrossEncoderClassificationEvaluator(pairs, [1, 1, 0, 0], write_csv=False)(model),
    "correlation": drop_in.CrossEncoderCorrelationEvaluator(pairs, [0.9, 0.5, 0.1, 0.3], write_csv=False)(model),
}))
""",
}


# --- the endpoint --------------------------------------------------------------------------------------------------


class Endpoint(BaseHTTPRequestHandler):
    """Embeds texts by their character trigrams, and scores pairs by those that they share; both protocols of each."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.startswith("/refuse"):
            return self.answer(400, {"error": "the input is too long"})
        if self.path.endswith("/rerank"):
            scores = [dot(trigrams(body["query"]), trigrams(text)) for text in body["texts"]]
            return self.answer(200, [{"index": i, "score": score} for i, score in enumerate(scores)])
        vectors: list[list[float | None]] = [trigrams(text) for text in body.get("inputs", body.get("input"))]
        if self.path.startswith("/nan"):
            vectors[0][0] = None
        rows = [{"index": i, "embedding": vector} for i, vector in enumerate(vectors)]
        return self.answer(200, {"data": rows} if self.path.endswith("/embeddings") else vectors)

    def answer(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def trigrams(text: str) -> list[float | None]:
    counts: list[float | None] = [0.0] * 16
    for i in range(len(text) - 2):
        counts[zlib.crc32(text[i : i + 3].encode()) % 16] += 1.0  # type: ignore[operator]
    return counts


def dot(one: Sequence[float | None], other: Sequence[float | None]) -> float:
    return sum((x or 0.0) * (y or 0.0) for x, y in zip(one, other, strict=True))


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """The address of an endpoint."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


# --- capture -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Capture:
    """Where the code is, where what it puts out goes, and the address of the endpoint."""

    tree: Path
    out: Path
    endpoint: str
    starters: queue.Queue[Starter]  # as many as commands may run at a time

    def start(self, words: Sequence[str], folder: Path, out: Path, err: Path) -> int:
        """Run `calipers WORDS`, or `python WORDS`, in the folder. The exit code."""
        starter = self.starters.get()
        try:
            return starter(Request(list(words), str(folder), environment(folder), str(out), str(err)))
        finally:
            self.starters.put(starter)

    def plain(self, text: str) -> str:
        """Without the places that differ between captures, whether a link was followed or not."""
        links = {str((WORK / name).resolve()): f"{WORK}/{name}" for name in ("tree", "data", "models", "weights")}
        for place, name in (*links.items(), (str(WORK), "<work>"), (self.endpoint, "127.0.0.1:<port>")):
            text = text.replace(place, name)
        return text


def capture(tree: Path, out: Path, *, old: Path | None, only: str, jobs: int, fresh: bool) -> int:
    """The number of cases whose exit code or files are not those that the table expects."""
    if out.exists():
        sys.exit(f"{out} exists already: name a new folder")
    start = time.monotonic()
    with alone(), serving() as endpoint, contextlib.ExitStack() as helpers:
        made = Capture(tree, out, endpoint, queue.Queue())
        prepare(made, old)
        for _ in range(jobs):
            made.starters.put(start_fresh if fresh else helpers.enter_context(helper(environment(WORK))))
        right = play_scenes(made, TABLE, only, jobs)
        if old or not only:
            keep_for_later(out, old)
            right += play_scenes(made, OLD_TABLE, only, jobs)
        shutil.copytree(WORK / "in", out / "in")
    wrong = right.count(False)
    print(f"{len(right)} cases in {time.monotonic() - start:.0f} s, {wrong} not as expected: {out}")
    return wrong


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """The working folder, new and for this process alone."""
    with WORK.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print(f"waiting for another capture, which uses {WORK}", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(WORK, ignore_errors=True)
        WORK.mkdir(parents=True)
        try:
            yield
        finally:
            shutil.rmtree(WORK, ignore_errors=True)


def prepare(made: Capture, old: Path | None) -> None:
    """Links to code, data and models, so that their paths have a fixed length; the inputs, the old ones if given."""
    (WORK / "tree").symlink_to(made.tree)
    for name in ("data", "models", "weights"):
        place = os.environ.get(f"CALIPERS_{name.upper()}")
        if not place or not Path(place).is_dir():
            sys.exit(f"CALIPERS_{name.upper()} must name a folder, found {place!r}")
        (WORK / name).symlink_to(Path(place).resolve())
    if old:
        shutil.copytree(old / "in", WORK / "in")
    else:
        write_inputs(WORK / "in", WORK / "data", WORK / "models")
    command = [sys.executable, "-c", "import calipers; print(calipers.__file__)"]
    done = subprocess.run(command, env=environment(WORK), capture_output=True, text=True, check=False)
    if not done.stdout.startswith(str(WORK / "tree")):
        sys.exit(f"calipers is not imported from {made.tree}: {done.stdout}{done.stderr}")
    made.out.mkdir(parents=True)


def environment(folder: Path) -> dict[str, str]:
    """Of a command: no hub, no keys, caches of its own, a width that does not depend on the terminal."""
    gone = ("CALIPERS_API_KEY", "OPENAI_API_KEY", "CALIPERS_DEBUG", "GITHUB_STEP_SUMMARY", "NO_COLOR", "FORCE_COLOR")
    settings = {
        "PYTHONPATH": str(WORK / "tree" / "src"),
        "PYTHONWARNINGS": "ignore",
        "PYTHONHASHSEED": "0",
        "CALIPERS_STORE": str(folder / "store"),
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(WORK / "huggingface"),
        "MTEB_CACHE": str(WORK / "mteb"),
        "OMP_WAIT_POLICY": "PASSIVE",  # the machine may be shared
        "COLUMNS": "200",
        "TERM": "xterm",
        "no_proxy": "127.0.0.1",
    }
    return {name: value for name, value in os.environ.items() if name not in gone} | settings


def keep_for_later(out: Path, old: Path | None) -> None:
    """A store, a trust file and a build of this code, or those of the old code, for the scenes OLD."""
    kept = out / "kept"
    if old:
        shutil.copytree(old / "kept", kept)
    else:
        shutil.copytree(WORK / "runs" / "store", kept / "store")
        shutil.copyfile(WORK / "runs" / "old.trust", kept / "old.trust")
        shutil.copytree(WORK / "build" / "built", kept / "built")
    for scene in OLD:
        shutil.copytree(kept, WORK / scene)


def play_scenes(made: Capture, table: str, only: str, jobs: int) -> list[bool]:
    """Run the scenes with this word in their name. Which cases are as expected."""
    scenes = [cases for scene, cases in read_table(table).items() if only in scene]
    with ThreadPoolExecutor(jobs) as pool:
        return [right for scene in pool.map(lambda cases: play(made, cases), scenes) for right in scene]


def play(made: Capture, cases: Sequence[Case]) -> list[bool]:
    """Run the cases of a scene, one after the other."""
    folder = WORK / cases[0].scene
    folder.mkdir(exist_ok=True)
    return [run_case(made, case, folder) for case in cases]


def run_case(made: Capture, case: Case, folder: Path) -> bool:
    before, known, start = stamps(folder), {id for store in stores(folder) for id in run_ids(store)}, time.monotonic()
    code, out, err = execute(made, case, folder)
    place = made.out / case.place
    place.mkdir(parents=True)
    about = {"code": code, "line": case.line, "seconds": round(time.monotonic() - start, 1)}
    (place / "case.json").write_text(json.dumps(about, indent=1) + "\n")
    (place / "stdout").write_text(made.plain(out))
    (place / "stderr").write_text(made.plain(err))
    changed = {path: stamp for path, stamp in stamps(folder).items() if before.get(path) != stamp}
    for file in sorted(changed, key=lambda path: (kept_name(path, folder), changed[path])):
        keep_file(made, file, place / "files" / kept_name(file, folder))
    stored = {store.name: read_store(store, known) for store in stores(folder)}
    (place / "stores.json").write_text(made.plain(json.dumps(stored, indent=0)))
    missing = [name for name in case.writes if not (folder / name).exists()]
    if code != case.code or missing:
        wrong = f"exit code {code}, expected {case.code}" if code != case.code else f"no {', '.join(missing)}"
        print(f"{case.scene}/{case.name}: {wrong}\n  {err.strip()[-300:]}", flush=True)
    return code == case.code and not missing


def execute(made: Capture, case: Case, folder: Path) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    words = fill(case, folder, made.endpoint)
    with tempfile.TemporaryDirectory(dir=WORK) as passing:
        out, err = Path(passing) / "out", Path(passing) / "err"
        if words[:1] == ["tty"]:
            code = in_terminal(out, lambda terminal: made.start(words[1:], folder, terminal, err))
        else:
            code = made.start(words, folder, out, err)
        return code, out.read_bytes().decode(errors="replace"), err.read_bytes().decode(errors="replace")


def fill(case: Case, folder: Path, endpoint: str) -> list[str]:
    """The words of the line with every {name} replaced. A run that is not there, since a case failed, stays a name."""
    runs = {f"run{i}": id for i, id in enumerate(run_ids(folder / "store"), start=1)}
    names = {**PLACES, **runs, "out": case.name, "endpoint": f"http://{endpoint}"}
    return [re.sub(r"{(\w+)}", lambda match: names.get(match[1], match[0]), word) for word in shlex.split(case.line)]


def in_terminal(out: Path, start: Callable[[Path], int]) -> int:
    """Give a command a terminal for its stdout alone: the progress bar, which differs from run to run, is on stderr."""
    leader, follower = pty.openpty()
    chunks: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # the end of a terminal
            while chunk := os.read(leader, 65536):
                chunks.append(chunk)

    reader = threading.Thread(target=read)
    reader.start()
    code = start(Path(os.ttyname(follower)))
    os.close(follower)
    reader.join()
    os.close(leader)
    out.write_bytes(b"".join(chunks).replace(b"\r\n", b"\n"))
    return code


def stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    """The files of a folder, with time and size. Those that belong to a store are left to `read_store`."""
    own = [store / name for store in stores(folder) for name in ("calipers.db", "outcomes", "vectors")]
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    others = [path for path in files if not any(path.is_relative_to(place) for place in own)]
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in others}


def stores(folder: Path) -> list[Path]:
    return sorted(file.parent for file in folder.glob("*/calipers.db"))


# --- what is kept of a file ----------------------------------------------------------------------------------------

TEXT = (".json", ".yaml", ".xml", ".html", ".md", ".txt", ".run", ".tsv", ".jsonl", ".csv")


def kept_name(file: Path, folder: Path) -> str:
    """Names that are keys of a cache depend on the code."""
    return re.sub(r"[0-9a-f]{16,}", "KEY", str(file.relative_to(folder)))


def keep_file(made: Capture, file: Path, target: Path) -> None:
    """Text as it is, what is binary as JSON that can be compared."""
    target.parent.mkdir(parents=True, exist_ok=True)
    while target.exists():  # another that is named after a key
        target = target.with_stem(f"{target.stem}+")
    readers = {".onnx": read_graph, ".trust": read_trust, ".npy": read_array}
    if file.suffix in TEXT:
        target.write_text(made.plain(file.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        content = readers.get(file.suffix, read_bytes)(file)
        target.with_name(f"{target.name}.json").write_text(made.plain(json.dumps(content, indent=0)))


def read_bytes(file: Path) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()}


def read_array(file: Path) -> dict[str, Any]:
    import numpy as np

    table = np.load(file)
    return {
        "shape": table.shape,
        "dtype": str(table.dtype),
        "sum": float(table.sum()),
        "squares": float((table**2).sum()),
    }


def read_graph(file: Path) -> dict[str, Any]:
    """Nodes and weights of an ONNX graph, without what exporters write beside them about the code that ran."""
    import onnx

    graph = onnx.load(file).graph
    nodes = [
        [n.op_type, n.name, list(n.input), list(n.output), sorted(a.SerializeToString().hex() for a in n.attribute)]
        for n in graph.node
    ]
    weights = {
        w.name: [w.data_type, list(w.dims), hashlib.sha256(onnx.numpy_helper.to_array(w).tobytes()).hexdigest()]
        for w in graph.initializer
    }
    ends = {"inputs": [i.name for i in graph.input], "outputs": [o.name for o in graph.output]}
    return {"nodes": nodes, "weights": weights, **ends}


def read_trust(file: Path) -> dict[str, Any]:
    from safetensors import safe_open

    with safe_open(file, framework="numpy") as opened:
        arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        header = {name: json.loads(text) for name, text in (opened.metadata() or {}).items()}
    return {"header": header, "arrays": {n: [str(a.dtype), a.shape, a.tolist()] for n, a in arrays.items()}}


def run_ids(store: Path) -> list[str]:
    """Oldest first."""
    if not (store / "calipers.db").exists():
        return []
    with contextlib.closing(sqlite3.connect(store / "calipers.db")) as database:
        return [id for (id,) in database.execute("SELECT run_id FROM runs ORDER BY created, run_id")]


def read_store(store: Path, known: set[str]) -> dict[str, Any]:
    """How many runs there are; those that are new, with every outcome; and the vectors that are kept."""
    ids = run_ids(store)
    new = [read_run(store, id) for id in ids if id not in known]
    vectors = sorted(
        (read_array(file) for file in (store / "vectors").glob("*.npy")), key=lambda v: (v["shape"], v["sum"])
    )
    return {"runs": len(ids), "new": new, "vectors": vectors}


def read_run(store: Path, id: str) -> dict[str, Any]:
    import pyarrow.parquet as pq

    with contextlib.closing(sqlite3.connect(store / "calipers.db")) as database:
        database.row_factory = sqlite3.Row
        row = dict(database.execute("SELECT * FROM runs WHERE run_id = ?", (id,)).fetchone())
    files = sorted((store / "outcomes").glob(f"{id}*.parquet"))
    tables = {file.name.removeprefix(f"{id}."): pq.read_table(file).to_pydict() for file in files}
    return {**row, "facts": json.loads(row["facts"]), "outcomes": tables}


# --- compare -------------------------------------------------------------------------------------------------------

# Keys of JSON whose values differ from run to run: what time it was, how long it took, and ids that are made from it.
VOLATILE = {
    *("created", "date", "run", "run_id", "timing", "seconds", "latency", "p50", "p95"),
    *("evaluation_time", "environment"),
}
# Keys whose values depend on the code by design: keys of caches, versions, and hashes and sizes of graphs, for an
# exporter writes the names of the code that ran into them. Their nodes and weights are compared one by one.
CODE_DEPENDENT = {"cache_key", "key", "versions", "sha256", "size", "given"}
# In these scenes graphs are made, so that the fingerprint of a model depends on the code too; that of data does not.
BUILT = ("build/", "attribute/")
MODELS = {"model", "baseline", "candidates"}
# Keys below which a value with a space in it is a sentence, or a setting that is told in words.
WORDING = {
    *("warnings", "warning", "notes", "note", "outcome_notes", "reason", "reasons", "sentence", "sentences", "message"),
    *("headline", "headlines", "findings", "summary", "paragraph", "about", "meaning", "level", "why", "how", "what"),
    *("change", "expected", "activation", "batching", "short_cut", "through", "differences"),
}
LABELS = "PASS|AT_RISK|REGRESSION|INCONCLUSIVE|INVALID"
# What is taken out of text before its numbers are read: ids of runs, dates, durations and progress bars, which differ
# from run to run, and sizes of graphs, which name the code that made them.
RUN = re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{6}\b")
MASKS = [
    (RUN, "RUN"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?"), "WHEN"),
    (re.compile(r"\b\d[\d,]*(\.\d+)? m?s\b|\b(loading|inference|metrics) \d+\.\d|\btime=\"[\d.]+\""), "TIME"),
    (re.compile(r"\d+%\|.*?it/s\]"), "BAR"),
    (re.compile(r"\b\d+(\.\d+)? [kMG]B\b"), "SIZE"),
]
# How text is set: colours of a terminal, columns, which are as wide as what stands in them, and where packages are.
LAYOUT = [
    (re.compile(r"[^\s\"'(]*/site-packages"), "<packages>"),
    (re.compile(r"\x1b\[[0-9;?]*[A-Za-z]"), ""),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r"─+"), "─"),
]
NUMBER = re.compile(rf"(?<![\w.])[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])|\b(?:{LABELS})\b")
SHOWN = 6  # differences of a case, unless all are asked for
FLAG = re.compile(r"(?<![\w-])--?[a-z][a-z0-9-]*")


@dataclass(frozen=True)
class Difference:
    must: bool  # False: wording
    case: str
    place: str
    what: str


@dataclass(frozen=True)
class Rules:
    """How the outputs of a case are compared."""

    flags: bool  # help texts: the flags that are named count
    built: bool  # the fingerprint of a model depends on the code
    exact: bool  # stored runs are read, so that dates and durations are the same ones

    @classmethod
    def of(cls, case: str) -> Rules:
        return cls(case.startswith("help/"), case.startswith(BUILT), case.startswith("old-store/"))

    def ignores(self, path: Sequence[str]) -> bool:
        if path[-1] in CODE_DEPENDENT or (path[-1] in VOLATILE and not self.exact):
            return True
        if self.exact and path[-1] == "vectors":  # kept under a key of the code: the new code adds its own
            return True
        return self.built and path[-1] == "fingerprint" and bool(MODELS.intersection(path))


def compare(old: Path, new: Path, *, only: str, everything: bool) -> int:
    """Print what differs. The number of differences that must not be."""
    every = list(differences(old, new, only))
    for title, must in (("Wording that differs", False), ("Differences that must not be", True)):
        chosen = [one for one in every if one.must == must]
        print(f"{title}: {len(chosen)}")
        for case, several in itertools.groupby(chosen, key=lambda one: one.case):
            listed = list(several)
            for one in listed if everything else listed[:SHOWN]:
                print(f"  {case}  {one.place}: {one.what}")
            if len(listed) > SHOWN and not everything:
                print(f"  {case}  {len(listed) - SHOWN} more (--all)")
    return sum(one.must for one in every)


def differences(old: Path, new: Path, only: str) -> Iterator[Difference]:
    if any(only in scene for scene in OLD) and digest(old / "kept") != digest(new / "kept"):
        yield Difference(True, OLD[0], "kept", f"{new} did not read the old store: capture it with --old {old}")
    cases = {path.parent.relative_to(side / "cases") for side in (old, new) for path in side.glob("*/*/*/case.json")}
    for case in sorted(case for case in cases if only in case.parts[0]):
        yield from of_case(str(case), old / "cases" / case, new / "cases" / case)


def digest(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(str(f.relative_to(folder)).encode() + f.read_bytes() for f in files)).hexdigest()


def of_case(case: str, old: Path, new: Path) -> Iterator[Difference]:
    if not (old.exists() and new.exists()):
        yield Difference(True, case, "case", f"only in the {'old' if old.exists() else 'new'} capture")
        return
    sides = [{str(path.relative_to(side)) for path in side.rglob("*") if path.is_file()} for side in (old, new)]
    for name in sorted(sides[0] ^ sides[1]):
        yield Difference(True, case, name, f"only in the {'old' if name in sides[0] else 'new'} capture")
    for name in sorted(sides[0] & sides[1]):
        texts = [(side / name).read_text(encoding="utf-8") for side in (old, new)]
        if name == "case.json":
            codes = [json.loads(text)["code"] for text in texts]
            if codes[0] != codes[1]:
                yield Difference(True, case, "exit code", f"{codes[0]} → {codes[1]}")
            continue
        for must, place, what in of_file(Rules.of(case), name, *texts):
            yield Difference(must, case, f"{name}{place}", what)


def of_file(rules: Rules, name: str, old: str, new: str) -> Iterator[tuple[bool, str, str]]:
    """Whether it must not differ, where, and how."""
    if old == new:
        return
    documents = [parsed(name, text) for text in (old, new)]
    if None not in documents:
        yield from of_json(rules, documents[0], documents[1], ())
        return
    texts = [masked(name, text, exact=rules.exact) for text in (old, new)]
    numbers = [sequence(text, flags=rules.flags) for text in texts]
    if numbers[0] != numbers[1]:
        moved = sorted(numbers[0]) == sorted(numbers[1])
        yield True, "", f"{'(only their order) ' * moved}{first_change(*numbers)}"
    elif texts[0] != texts[1]:
        yield False, "", first_change(*(text.splitlines() for text in texts))


def parsed(name: str, text: str) -> Any:
    """What JSON or YAML says; None for other text."""
    if name.endswith((".yaml", ".yml")):
        import yaml

        return yaml.safe_load(text)
    with contextlib.suppress(ValueError):
        content = json.loads(mask_runs(text))
        return content if isinstance(content, dict | list) else None
    return None


def mask_runs(text: str) -> str:
    """Ids of runs by the order in which they appear, so that the same run has the same name."""
    names: dict[str, str] = {}
    return RUN.sub(lambda match: names.setdefault(match[0], f"RUN{len(names)}"), text)


def of_json(rules: Rules, old: Any, new: Any, path: tuple[str, ...]) -> Iterator[tuple[bool, str, str]]:
    place = " " + ".".join(path)
    if path and rules.ignores(path):
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() ^ new.keys()):
            yield True, place, f"the key {key!r} is only in the {'old' if key in old else 'new'} one"
        for key in sorted(old.keys() & new.keys()):
            yield from of_json(rules, old[key], new[key], (*path, key))
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield True, place, f"{len(old)} entries → {len(new)}"
        for i, (one, other) in enumerate(zip(old, new, strict=False)):
            yield from of_json(rules, one, other, (*path, str(i)))
    elif not same(old, new, exact=rules.exact):
        sentence = bool(WORDING.intersection(path)) and " " in str(old) and isinstance(new, str)
        moved = sentence and sequence(old, flags=False) != sequence(new, flags=False)
        yield not sentence, place, f"{'(its numbers too) ' * moved}{short(old)} → {short(new)}"


def same(old: Any, new: Any, *, exact: bool) -> bool:
    """Numbers to 1e-9, and NaN is NaN; text without what differs from run to run."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in (old, new)):
        return math.isclose(old, new, rel_tol=1e-9, abs_tol=1e-12) or (old != old and new != new)
    if isinstance(old, str) and isinstance(new, str):
        return masked("", old, exact=exact) == masked("", new, exact=exact)
    return type(old) is type(new) and bool(old == new)


def masked(name: str, text: str, *, exact: bool) -> str:
    """Text without what may differ; `exact` takes out only how it is set."""
    if name.endswith((".html", ".xml", ".md")):
        text = html.unescape(re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL))
    for pattern, instead in LAYOUT if exact else [*LAYOUT, *MASKS]:
        text = pattern.sub(instead, text)
    return text


def sequence(text: str, *, flags: bool) -> list[str]:
    """The numbers and labels of a text in their order; with `flags`, also the flags that it names, each once.

    >>> sequence("nDCG@10 of 1,500: -0.25 [0.1, 2e-05] PASS, L6-v2", flags=False)
    ['10', '1500', '-0.25', '0.1', '2e-05', 'PASS']
    """
    numbers = [number.replace(",", "").replace("−", "-") for number in NUMBER.findall(text)]
    return [*numbers, *sorted(set(FLAG.findall(text)))] if flags else numbers


def first_change(old: Sequence[str], new: Sequence[str]) -> str:
    """The first place where two sequences part, and how many such places there are."""
    start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    old, new = old[start : start + 2000], new[start : start + 2000]  # the time that this takes is quadratic
    changes = [c for c in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes() if c[0] != "equal"]
    _, a, b, c, d = changes[0]
    return f"{short(' '.join(old[a:b]))} → {short(' '.join(new[c:d]))} ({len(changes)} such places)"


def short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return repr(text if len(text) <= 160 else f"{text[:157]}…")


# --- the command ---------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.gold")
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("capture", help="run every case with the code of a tree")
    made.add_argument("tree", type=Path)
    made.add_argument("out", type=Path)
    made.add_argument("--old", type=Path, help="the capture of the old code, for its inputs and its store")
    made.add_argument("--only", default="", help="scenes with this word in their name")
    made.add_argument("--jobs", type=int, default=2, help="cases at a time")
    against = commands.add_parser("compare", help="what differs between two captures")
    against.add_argument("old", type=Path)
    against.add_argument("new", type=Path)
    against.add_argument("--only", default="", help="scenes with this word in their name")
    against.add_argument("--all", action="store_true", help="every difference, not the first of each case")
    made.add_argument("--fresh", action="store_true", help="start an interpreter for each command: slower")
    given = parser.parse_args()
    if given.command == "compare":
        return int(compare(given.old, given.new, only=given.only, everything=given.all) > 0)
    old = given.old.resolve() if given.old else None
    return int(
        capture(given.tree.resolve(), given.out.resolve(), old=old, only=given.only, jobs=given.jobs, fresh=given.fresh)
        > 0
    )


if __name__ == "__main__":
    sys.exit(main())
