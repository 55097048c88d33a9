#!/usr/bin/env bash
# Type-checks what is compiled for graphics cards, on a machine that has neither a card nor CUDA.
# The kernels' build script wants nvcc; a stub stands in for it, which says that it is one and
# makes empty outputs. Nothing built this way can run.
set -euo pipefail
cd "$(dirname "$0")/../.."

stub="$(mktemp -d)"
trap 'rm -rf "$stub"' EXIT
cat > "$stub/nvcc" <<'NVCC'
#!/bin/sh
case "$*" in
*--version*)
  # As the real one: build scripts take the release from the fourth line.
  echo "nvcc: NVIDIA (R) Cuda compiler driver"
  echo "Copyright (c) 2005-2025 NVIDIA Corporation"
  echo "Built by nobody"
  echo "Cuda compilation tools, release 13.0, V13.0.88"
  exit ;;
*--list-gpu-code*) echo sm_90; exit ;;
esac
output= folder= inputs=
while [ $# -gt 0 ]; do
  case "$1" in
  -o | --output-file) output=$2; shift ;;
  -odir | --output-directory) folder=$2; shift ;;
  *.cu) inputs="$inputs $1" ;;
  esac
  shift
done
[ -z "$output" ] || : > "$output"
[ -z "$folder" ] || for input in $inputs; do : > "$folder/$(basename "$input" .cu).ptx"; done
NVCC
chmod +x "$stub/nvcc"

# Its own folder of outputs: features that are on here must not be compiled anew elsewhere.
PATH="$stub:$PATH" CUDA_COMPUTE_CAP=90 CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/cuda-check" \
  cargo check --package fulgurite-model --features cuda --all-targets
