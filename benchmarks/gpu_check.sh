#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All checks that need a GPU, in one command, for machines that are available for a short time:
#   bash benchmarks/gpu_check.sh OUT [MINUTES]
# Runs in the current environment: PYTHON (default python3) must have cuDF 26.x and this project's dependencies, on
# PYTHONPATH if necessary. After a step that fails, the next step runs. Each step has a time limit, and all end after
# MINUTES (default 8, counted from the start). CURATION_TEST_DATA names a folder of real documents (default:
# ../shared/data). OUT gets at most 8 files: summary.txt, versions.txt, doctor.txt, pytest.txt, bench.txt, bench.json,
# gpu.json, gpu.npz. The last two are golden results, which are written only if both engines agree: copy them to
# tests/golden/ and commit them.
# Exit code: the number of failed steps.
set -uo pipefail
out=${1:?usage: gpu_check.sh OUT [MINUTES]}
minutes=${2:-8}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
export PYTHONUNBUFFERED=1 PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
deadline=$((SECONDS + minutes * 60))
failed=0
: >"$out/summary.txt"

say() { echo "$*" | tee -a "$out/summary.txt"; }

# step NAME SECONDS LOG COMMAND...: appends the output to LOG and records the seconds. After a failure it also records
# the end of the log. A step over its limit gets SIGINT first, so pytest can still print the failures until then.
step() {
  local name=$1 limit=$2 log=$out/$3 start=$SECONDS left=$((deadline - SECONDS)) code
  shift 3
  if ((left <= 5)); then
    say "SKIPPED $name: no time left"
    failed=$((failed + 1))
    return
  fi
  echo "+ $*" >>"$log"
  ((limit < left)) || limit=$left
  timeout --signal=INT --kill-after=20 "$limit" "$@" >>"$log" 2>&1
  code=$?
  if ((code == 0)); then
    say "ok      $name ($((SECONDS - start)) s)"
  else
    failed=$((failed + 1))
    say "FAILED  $name (code $code, $((SECONDS - start)) s); the end of $(basename "$log"):"
    tail -n 15 "$log" | sed 's/^/        /' | tee -a "$out/summary.txt"
  fi
}

versions='
import platform, sys
print(platform.platform(), sys.version)
for name in "cudf pylibcudf rmm cupy numba numba_cuda dask dask_cudf dask_cuda distributed pandas pyarrow numpy".split():
    try:
        print(name, getattr(__import__(name), "__version__", "?"))
    except Exception as error:
        print(name, "MISSING:", repr(error))
'
first_touch='
import gpu_pipeline
from curation.doctor import self_check
print(gpu_pipeline.describe())
check = self_check(["cpu", "gpu"], 60)
print("failed:", *check.failed, *check.failed.values(), sep="\n")
print("different:", check.differing)
raise SystemExit(bool(check.failed or check.differing))
'
golden='
import sys
from pathlib import Path
from tests.golden.recording import record_golden
record_golden(Path(sys.argv[1]))
'

# -W default: the installed libraries may print warnings that this project does not cause. Each file has a separate
# process, because a faulty kernel ends the CUDA context of its process. -p no:cacheprovider: the tree may be read-only.
tests=("$python" -m pytest -W default -p no:cacheprovider -q -m "" --engine gpu --durations=5)

step "nvidia-smi" 60 versions.txt nvidia-smi
step "versions" 120 versions.txt "$python" -c "$versions"
step "first touch: 60 documents on both engines" 300 doctor.txt "$python" -c "$first_touch"
step "doctor: 2500 documents on both engines" 120 doctor.txt "$python" -c \
  'import sys; from curation.doctor import diagnose; lines, sound = diagnose(); print("\n".join(lines)); sys.exit(not sound)'
if ((failed)); then
  step "first touch again, with CUDA_LAUNCH_BLOCKING" 120 doctor.txt env CUDA_LAUNCH_BLOCKING=1 "$python" -c "$first_touch"
else
  step "golden results" 120 doctor.txt "$python" -c "$golden" "$out"
fi
for file in tests/parity/*.py tests/stages/test_language.py tests/stages/test_re*.py tests/rules/test_rules.py; do
  step "$file" 120 pytest.txt "${tests[@]}" -k gpu "$file"
done
step "benchmark" 150 bench.txt "$python" -m benchmarks.gpu_bench --job 500MB --output "$out/bench.json"
step "all other tests" 600 pytest.txt "${tests[@]}" --ignore tests/parity --continue-on-collection-errors tests

grep -E '^(FAILED|ERROR) |(passed|failed).* in ' "$out/pytest.txt" 2>/dev/null | head -n 60 | tee -a "$out/summary.txt"
say "$failed steps failed"
exit "$failed"
