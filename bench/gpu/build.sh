#!/bin/sh
# Builds what a GPU machine needs into the folder given (default .gpu): the programs, every kernel's
# PTX text for ptxas, PyTorch's side and run.sh. Run it where Go is, carry the folder, run run.sh there.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p "${1:-.gpu}"
out=$(cd "${1:-.gpu}" && pwd)
export CGO_ENABLED=0 GOOS=linux GOARCH=amd64
go build -ldflags '-s -w' -o "$out/ampc" ./cmd/ampc
go build -ldflags '-s -w' -o "$out/bench" ./bench
go test -c -ldflags '-s -w' -o "$out/gputest" ./cuda/gputest
go test -c -ldflags '-s -w' -o "$out/suite" ./runtime/gpu
go test -run TestWriteKernels ./ptx/ptxtest -kernels "$out" >/dev/null
mkdir -p "$out/torch"
cp bench/torch/*.py "$out/torch/"
cp bench/gpu/run.sh bench/gpu/torch_kernels.py "$out/"
ls -l "$out"
