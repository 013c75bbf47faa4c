#!/bin/sh
# Builds what a GPU machine needs into the folder given (default .gpu): the check binary, every
# kernel's PTX text for ptxas, and the scripts. Run it where Go is; carry the folder; run run.sh there.
set -eu
cd "$(dirname "$0")/../.."
out=${1:-.gpu}
mkdir -p "$out"
CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go test -c -o "$out/gputest" ./cuda/gputest
go test -run TestWriteKernels ./ptx/ptxtest -kernels "$(cd "$out" && pwd)" >/dev/null
cp bench/gpu/run.sh bench/gpu/torch_kernels.py "$out/"
ls -l "$out"
