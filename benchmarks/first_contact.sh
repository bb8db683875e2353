#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# First contact with a bare GPU machine that has no network, in two steps, since what it needs may not travel at once:
#   bash benchmarks/first_contact.sh one OUT            unpacks KIT, then probes every interface (benchmarks/probe.py)
#   bash benchmarks/first_contact.sh two OUT [MINUTES]  installs WHEELS, compiles both engines, then gpu_check.sh
#   bash benchmarks/first_contact.sh dry OUT            what of both steps runs without a device
# KIT (default .kit): RAPIDS as a folder with unpack.sh, which installs into SITE and writes SITE/env.sh.
# WHEELS (default .whl): this project's other dependencies. DATA (default .data): real_2mb.jsonl, if at hand.
# PYTHON (default python3). An error does not stop the step; OUT gets one log for each part, and summary.txt.
# Exit code: the number of parts that failed.
set -uo pipefail
usage="usage: first_contact.sh one|two|dry OUT [MINUTES]"
step=${1:?$usage}
out=${2:?$usage}
minutes=${3:-8}
case $step in one | two | dry) ;; *) echo "$usage; got $step" >&2 && exit 64 ;; esac
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
kit=${KIT:-.kit} wheels=${WHEELS:-.whl} data=${DATA:-.data}
export SITE=${SITE:-/tmp/rapids-site} OURS=${OURS:-/tmp/our-site} PYTHONUNBUFFERED=1 KVIKIO_COMPAT_MODE=ON
failed=0

say() { echo "$*" | tee -a "$out/summary.txt"; }

# part LOG SECONDS COMMAND...: runs it with a time limit, and records seconds and the end of a log that failed.
part() {
  local log=$out/$1.txt limit=$2 start=$SECONDS code
  shift 2
  echo "+ $*" >>"$log"
  timeout --kill-after=20 "$limit" "$@" >>"$log" 2>&1
  code=$?
  if ((code == 0)); then
    say "ok      $(basename "$log" .txt) ($((SECONDS - start)) s)"
  else
    failed=$((failed + 1))
    say "FAILED  $(basename "$log" .txt) (code $code, $((SECONDS - start)) s):"
    tail -n 15 "$log" | sed 's/^/        /' | tee -a "$out/summary.txt"
  fi
}

facts() {
  nvidia-smi || echo "no device: nvidia-smi fails or is missing"
  echo "CUDA_HOME=${CUDA_HOME:-}"
  df -h /tmp
  nproc
  "$python" --version
  "$python" -m pip list
}

find_cuda() {
  local found=${CUDA_HOME:-/usr/local/cuda} nvcc
  if [ ! -e "$found/nvvm/lib64/libnvvm.so" ]; then
    nvcc=$(readlink -f "$(command -v nvcc)" 2>/dev/null)
    [ -z "$nvcc" ] || found=$(dirname "$(dirname "$nvcc")")
  fi
  [ -d "$found" ] && export CUDA_HOME=$found
}

# Python does not read .pth files of a folder on PYTHONPATH. numba-cuda has one that redirects numba.cuda.
redirect_numba() {
  printf 'try:\n    import _numba_cuda_redirector\nexcept ImportError:\n    pass\n' >"$SITE/sitecustomize.py"
}

use_site() {
  # shellcheck disable=SC1091
  [ ! -e "$SITE/env.sh" ] || . "$SITE/env.sh"
  export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}:$OURS"
}

# CPU kernels compile in a minute of one core, CUDA kernels in half of that: at the same time.
compile_both() {
  "$python" -c 'from curation.doctor import self_check; print("cpu:", self_check(["cpu"], 60).failed)' &
  local cpu=$!
  "$python" -c 'from curation.doctor import self_check; print("gpu:", self_check(["gpu"], 60).failed)'
  local gpu=$?
  wait "$cpu" && ((gpu == 0))
}

find_cuda
: >"$out/summary.txt"
if [ "$step" = dry ]; then
  say "dry: no device is needed, and none is used"
  part machine 60 bash -c "$(declare -f facts); python=$python; facts"
  export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
  part probe 300 "$python" -m benchmarks.probe --dry --output "$out/probe.json"
  part bench 300 "$python" -m benchmarks.gpu_bench --dry --output "$out/bench.json"
elif [ "$step" = one ]; then
  part machine 60 bash -c "$(declare -f facts); python=$python; facts"
  if [ -e "$kit/unpack.sh" ]; then
    mkdir -p "$SITE"
    part unpack 300 bash "$kit/unpack.sh" "$kit"
    redirect_numba
  else
    say "no kit: $kit/unpack.sh does not exist; the packages of $python are probed"
  fi
  use_site
  part probe 300 "$python" -m benchmarks.probe --output "$out/probe.json"
  grep -E '^(FAIL|no device)' "$out/probe.txt" | tee -a "$out/summary.txt"
else
  use_site
  if compgen -G "$wheels/*.whl" >/dev/null; then
    part install 300 "$python" -m pip install -q --no-index --no-deps --no-compile --upgrade --target "$OURS" "$wheels"/*.whl
  else
    say "no wheels: $wheels/*.whl does not exist; the packages of $python are used"
  fi
  [ ! -d "$data" ] || CURATION_TEST_DATA=$(cd "$data" && pwd)
  export CURATION_TEST_DATA=${CURATION_TEST_DATA:-}
  part compile 300 bash -c "$(declare -f compile_both); python=$python; compile_both"
  PYTHON=$python bash benchmarks/gpu_check.sh "$out/check" "$minutes"
  code=$?
  say "gpu_check.sh: $code steps failed; see $out/check/summary.txt"
  failed=$((failed + code))
fi
say "$failed parts failed"
exit "$failed"
