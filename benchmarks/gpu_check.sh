#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that only a GPU can show, in one go, for machines that are at hand for a short time:
#   bash benchmarks/gpu_check.sh OUT [MINUTES]
# Runs in the current environment: PYTHON (default python3) must have cuDF 26.x and this project's dependencies, on
# PYTHONPATH if need be. A step that fails is recorded and the next one runs. The slowest steps come last and stop when
# MINUTES (default 9) are over. OUT gets at most 8 files: summary.txt, versions.txt, doctor.txt, pytest.txt, bench.txt,
# bench.json, gpu.json, gpu.npz. The last two are golden results: copy them to tests/golden/ and commit them.
# Exit code: how many steps failed.
set -uo pipefail
out=${1:?usage: gpu_check.sh OUT [MINUTES]}
minutes=${2:-9}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
export PYTHONUNBUFFERED=1 PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
deadline=$((SECONDS + minutes * 60))
failed=0
: >"$out/summary.txt"

say() { echo "$*" | tee -a "$out/summary.txt"; }

# step NAME LOG COMMAND...: appends the output to LOG; records seconds, and the end of the log where it failed.
step() {
  local name=$1 log=$out/$2 start=$SECONDS left=$((deadline - SECONDS)) code
  shift 2
  if ((left <= 5)); then
    say "SKIPPED $name: no time left"
    failed=$((failed + 1))
    return
  fi
  echo "+ $*" >>"$log"
  timeout --kill-after=5 "$left" "$@" >>"$log" 2>&1
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
import cudf
import gpu_pipeline
from curation.doctor import self_check
print(gpu_pipeline.describe())
check = self_check(["cpu", "gpu"], 60)
print("different:", check.differing)
raise SystemExit(bool(check.differing))
'
golden='
import sys
from pathlib import Path
from curation.doctor import record_golden
record_golden(Path(sys.argv[1]))
'

step "nvidia-smi" versions.txt nvidia-smi
step "versions" versions.txt "$python" -c "$versions"
step "first touch: 60 documents on both engines" doctor.txt "$python" -c "$first_touch"
step "doctor: 2500 documents on both engines" doctor.txt "$python" -c \
  'import sys; from curation.doctor import diagnose; lines, sound = diagnose(); print("\n".join(lines)); sys.exit(not sound)'
step "golden results" doctor.txt "$python" -c "$golden" "$out"
step "benchmark" bench.txt "$python" -m benchmarks.gpu_bench --job 500MB --output "$out/bench.json"
# -p no:cacheprovider: the tree may be read-only. Failures of the whole suite matter, so no -x.
step "tests with --engine gpu" pytest.txt "$python" -m pytest tests --engine gpu -q -p no:cacheprovider --durations=15

grep -E '^(FAILED|ERROR) |^[0-9]+ (passed|failed)|(passed|failed).* in ' "$out/pytest.txt" 2>/dev/null | head -n 60 | tee -a "$out/summary.txt"
say "$failed steps failed"
exit "$failed"
