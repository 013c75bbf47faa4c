#!/bin/sh
# Runs every GPU check on a machine with a driver, no Go needed: ptxas on all kernels, the checks
# against references and the interpreter, compute-sanitizer, bandwidth and GEMM tables, PyTorch's
# figures for the same tensors. Everything goes to the folder given (default ./gpu-out) and stdout.
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-gpu-out}
mkdir -p "$out"
export AMPC_NEED_GPU=1
fail=0
step() { # name, seconds, command...
	name=$1; limit=$2; shift 2
	echo "== $name"
	timeout "$limit" "$@" >"$out/$name.log" 2>&1
	code=$?
	[ $code = 0 ] || { fail=1; echo "FAILED ($code)"; }
	tail -n "${lines:-12}" "$out/$name.log"
}
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
if command -v ptxas >/dev/null; then
	for text in "$here"/kernels_sm*.ptx; do
		flavour=${text##*_sm}; flavour=${flavour%.ptx}
		for sm in 75 80 86 89 90 100; do
			[ "$sm" -ge "$flavour" ] || continue
			if ptxas -v -arch=sm_$sm -o /dev/null "$text" >"$out/ptxas_${flavour}_$sm.log" 2>&1; then
				echo "ptxas flavour sm_$flavour for sm_$sm: $(grep -c 'Function properties' "$out/ptxas_${flavour}_$sm.log") kernels, $(grep -c ' [1-9][0-9]* bytes spill stores' "$out/ptxas_${flavour}_$sm.log") with spills"
			else
				echo "ptxas flavour sm_$flavour for sm_$sm:"; tail -n 3 "$out/ptxas_${flavour}_$sm.log"
			fi
		done
	done
fi
lines=20 step probe 60 "$here/gputest" -test.v -test.run 'TestProbe'
lines=15 step kernels 200 "$here/gputest" -test.run 'TestKernels|TestGraph|TestTrainingStep'
lines=15 step gemm 120 "$here/gputest" -test.v -test.run 'TestGemm$'
lines=40 step bandwidth 120 "$here/gputest" -test.run 'TestBandwidth'
lines=20 step gemmspeed 120 "$here/gputest" -test.run 'TestGemmSpeed'
lines=20 step dnn 120 "$here/gputest" -test.v -test.run 'TestAttention|TestConv'
if command -v compute-sanitizer >/dev/null; then
	step memcheck 120 compute-sanitizer --tool memcheck --error-exitcode 9 "$here/gputest" -test.run 'TestKernels/sm80|TestKernels/sm90'
	step racecheck 100 compute-sanitizer --tool racecheck --error-exitcode 9 "$here/gputest" -test.run 'TestKernels/sm80|TestKernels/sm90'
fi
if python3 -c 'import torch' 2>/dev/null; then
	lines=20 step torch 200 python3 "$here/torch_kernels.py"
fi
[ $fail = 0 ] && echo "ALL PASSED" || echo "SOMETHING FAILED"
exit $fail
