#!/usr/bin/env bash
# One comparison for a CI job: the verdict in its log, summary, JUnit file and status.
# Variables: BASELINE, CANDIDATES; DATASET, TASK, ARGUMENTS, INCONCLUSIVE (fail or warn), JUNIT.
set -uo pipefail

case "${INCONCLUSIVE:=fail}" in
fail | warn) ;;
*)
    echo "::error title=Calipers::inconclusive must be fail or warn, found '$INCONCLUSIVE'"
    exit 2
    ;;
esac

# Words as a command line has them, quotes included; nothing is expanded or run.
list=$(mktemp)
CANDIDATES="${CANDIDATES:?}" ARGUMENTS="${ARGUMENTS:-}" python -c '
import os, shlex, sys
for name in ("CANDIDATES", "ARGUMENTS"):
    try:
        words = shlex.split(os.environ[name])
    except ValueError as error:
        print(f"::error title=Calipers::{name.lower()}: {error}")
        sys.exit(2)
    with open(sys.argv[1], "a", encoding="utf-8") as file:
        file.writelines(word + "\0" for word in words)
' "$list" || exit
words=()
while IFS= read -r -d '' word; do words+=("$word"); done <"$list"
rm -f "$list"
document=$(mktemp)
code=0
calipers compare "${BASELINE:?}" "${words[@]}" --task "${TASK:-sentence-similarity}" \
    ${DATASET:+--dataset "$DATASET"} --junit "${JUNIT:-verdict.xml}" --output "$document" --force || code=$?

read -r label headline < <(python -c '
import json, sys
try:
    verdict = json.load(open(sys.argv[1], encoding="utf-8"))
    print(verdict["label"], " ".join(verdict["headline"].split()))
except ValueError:
    print("", "there is no verdict: see the log")
' "$document")
rm -f "$document"
case "$label" in
PASS | AT_RISK | REGRESSION | INCONCLUSIVE | INVALID) ;;
*) headline="$label $headline" label="" ;;
esac
{
    echo "label=$label"
    echo "exit=$code"
} >>"${GITHUB_OUTPUT:-/dev/null}"

if [ "$code" -eq 5 ] && [ "$INCONCLUSIVE" = warn ]; then
    echo "::warning title=Calipers: INCONCLUSIVE::$headline"
    exit 0
fi
if [ "$code" -ne 0 ]; then
    echo "::error title=Calipers: ${label:-no verdict}::$headline"
elif [ "$label" = AT_RISK ]; then
    echo "::warning title=Calipers: AT_RISK::$headline"
fi
exit "$code"
