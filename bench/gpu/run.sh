#!/bin/sh
# Runs the checks and measurements on a machine with an NVIDIA GPU, from the folder that build.sh made.
# No Go is needed there; PyTorch, compute-sanitizer and ptxas are used where they are.
#
#	run.sh [--device cuda:0|sim:sm_90] [--seconds N] OUT [PART...]
#
# Writes OUT/log.txt (everything), OUT/summary.txt (a line for each step), OUT/results.jsonl (a line for
# each training) and OUT/table.md, as it goes: what was done stays when time runs out or a part fails, and more
# parts may be added to the same OUT later. Exits 1 if anything failed. Parts, and what they answer:
#
#	checks      probe answers ptxas flavours kernels suite zoo libraries learn
#	                                                           does all of it run, and compute what it should
#	sanitizer   memcheck racecheck initcheck synccheck             compute-sanitizer on the kernels
#	speed       copy gemm attention filters bandwidth replay torchkernels tune
#	                                                           copies, products, convolutions, every kernel of a step
#	training    mlp gpt2 resnet50, each MODEL:PRECISION or MODEL   beside PyTorch, eager and compiled; in bf16 also
#	                                                           without what epilogues of products do more, and
#	                                                           with attention whose sums vary between runs
#	            gpt2:profile resnet50:profile                  each launch of a step in bf16, and seconds to build plans
#	            gpt2:autotune                                      PyTorch with max-autotune, bf16
#	            gpt2:50257                                         the vocabulary of the paper, not padded, bf16
#	table                                                          the table again, from what is there
#	next        all of these, what matters most first, but those that an earlier call with the same OUT has finished
#
# PRECISION is f32, tf32, f16 or bf16. Without parts everything runs, as with next. No step is begun later than
# 20 s before N seconds have passed, and none runs longer than is left of them (default: none is left out); a step
# that takes longer than its own limit is stopped and counted as failed.
# With --device sim:sm_90 everything runs that does not need silicon, in small, PyTorch on the CPU.
here=$(cd "$(dirname "$0")" && pwd)
device=cuda:0 seconds=86400
while :; do
	case ${1:-} in
	--device) device=$2; shift 2 ;;
	--seconds) seconds=$2; shift 2 ;;
	*) break ;;
	esac
done
out=${1:?usage: run.sh [--device cuda:0|sim:sm_90] [--seconds N] OUT [PART...]}
shift
case $seconds in '' | *[!0-9]*) echo "run.sh: --seconds $seconds: want a number of seconds" >&2; exit 2 ;; esac
until=$(($(date +%s) + seconds))
mkdir -p "$out"
out=$(cd "$out" && pwd)
starts=${TMPDIR:-/tmp}/ampc-starts
mkdir -p "$starts"
failed=0
python=${AMPC_PYTHON:-python3}
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
case $device in
cuda:*)
	simulated=
	export AMPC_NEED_GPU=1 AMPC_DEVICE="$device" AMPC_CACHE="$out/algorithms"
	# Why a library refuses something is in its own log.
	export CUDNN_LOGLEVEL_DBG=1 CUDNN_LOGERR_DBG=1 CUDNN_LOGDEST_DBG="$out/cudnn.txt" CUBLASLT_LOG_LEVEL=1 CUBLASLT_LOG_FILE="$out/cublaslt.txt"
	torch_device=cuda:${device#cuda:}
	;;
sim:*) simulated=1; torch_device=cpu ;;
*) echo "run.sh: --device $device: want cuda:0 or sim:sm_90" >&2; exit 2 ;;
esac

say() { echo "$*" | tee -a "$out/log.txt"; }

# A step that was cut off with the whole script has left what it printed.
if [ -e "$out/step.tmp" ]; then cat "$out/step.tmp" >>"$out/log.txt"; rm -f "$out/step.tmp"; fi
trap 'table; exit 1' INT TERM

# step NAME SECONDS COMMAND... runs a command, shows the end of what it prints, and keeps all of it. $code is
# its exit status, or 75 where there is no time left to begin it.
step() {
	name=$1; limit=$2; shift 2
	begun=$(date +%s)
	left=$((until - begun))
	if [ $left -lt 20 ]; then
		skip "$name" "no time left"; unfinished=1 code=75
		return
	fi
	[ "$limit" -le $left ] || limit=$left
	say "== $name"
	timeout -k 10 "$limit" "$@" >"$out/step.tmp" 2>&1
	code=$?
	cat "$out/step.tmp" >>"$out/log.txt"
	tail -n "${lines:-6}" "$out/step.tmp"
	rm -f "$out/step.tmp"
	verdict=ok
	if [ $code = 124 ] && [ $limit = $left ]; then
		verdict="not done: no time left" unfinished=1
	elif [ $code = 124 ]; then verdict="FAILED: stopped after $limit s"; failed=1
	elif [ $code != 0 ]; then verdict="FAILED: exit status $code"; failed=1; fi
	say "-- $name: $verdict, $(($(date +%s) - begun)) s"
	echo "$name: $verdict" >>"$out/summary.txt"
}

skip() { say "-- $1: not run: $2"; echo "$1: not run: $2" >>"$out/summary.txt"; }

wrong() { say "run.sh: $1"; echo "$1: FAILED" >>"$out/summary.txt"; failed=1; }

tests() { # NAME SECONDS BINARY PATTERN: tests of a binary, whose own limit lies below the step's
	step "$1" "$2" "$here/$3" -test.v -test.timeout "$(($2 - 5))s" -test.run "$4"
}

sanitizer() {
	if [ -n "$simulated" ]; then skip "$1" "needs a GPU"
	elif ! command -v compute-sanitizer >/dev/null; then skip "$1" "no compute-sanitizer here"
	else
		step "$1" 240 compute-sanitizer --tool "$1" --error-exitcode 9 "$here/gputest" -test.run 'TestKernels/sm(80|90)|TestGraph|TestTrainingStep'
		[ "$1" != memcheck ] || step "memcheck of programs" 240 compute-sanitizer --tool memcheck --error-exitcode 9 "$here/suite" -test.run 'TestZooSome/sm_90|TestLibraries'
	fi
}

ptxas_all() {
	if ! command -v ptxas >/dev/null; then skip ptxas "no ptxas here"; return; fi
	for text in "$here"/kernels_sm*.ptx; do
		flavour=${text##*_sm}; flavour=${flavour%.ptx}
		for sm in 75 80 86 89 90 100; do
			[ "$sm" -ge "$flavour" ] || continue
			step "ptxas flavour $flavour for sm_$sm" 120 sh -c 'ptxas -v -arch="$1" -o /dev/null "$2" >"$3" 2>&1; code=$?
				if [ $code != 0 ]; then tail -n 5 "$3"; exit $code; fi
				echo "$(grep -c "Function properties" "$3") kernels, $(grep -c " [1-9][0-9]* bytes spill stores" "$3") with spills"' ptxas "sm_$sm" "$text" "$starts/ptxas.txt"
		done
	done
}

have_torch() { "$python" -c 'import torch.nn' 2>/dev/null; }

# spec MODEL: what is trained. The vocabulary is padded to whole tiles, as public GPT-2 trainers do, on both sides.
spec() {
	case ${simulated:+small}$1 in
	mlp) echo 'mlp?batch=4096&in=1024&hidden=4096&layers=3&classes=1000' ;;
	gpt2) echo 'gpt2?vocab=50304' ;;
	gpt2-50257) echo 'gpt2' ;;
	resnet50) echo 'resnet50' ;;
	smallmlp) echo 'mlp?batch=4&in=16&hidden=16' ;;
	smallgpt2*) echo 'gpt2?layers=2&batch=2&seq=32&dim=32&heads=2&vocab=64' ;;
	smallresnet50) echo 'resnet50?batch=2&size=32&width=4&classes=4&blocks1=1&blocks2=1&blocks3=0&blocks4=0' ;;
	esac
}

# ours MODEL PRECISION DEVICE: one line of the table.
ours() {
	# shellcheck disable=SC2086
	lines=2 step "$1:$2 ampc${3#"$device"}" 240 "$here/bench" train "$start" --device "$3" --precision "$2" $steps --into "$out/results.jsonl"
}

# profile MODEL: the time of each launch of a step in bf16, and of the step as a graph. The first compile of a
# process without stored choices measures them; the second finds them.
profile() {
	for stored in no yes; do
		[ $stored = yes ] || rm -rf "$starts/choices"
		lines=200 step "$1 profile, choices stored: $stored" 280 env AMPC_CACHE="$starts/choices" "$here/ampc" bench "zoo:$(spec "$1")" --policy mixed-bf16 --weight-copies --device "$device" --steps "$([ -n "$simulated" ] && echo 1 || echo 5)" --profile
	done
}

# train MODEL PRECISION MODE...: ours and PyTorch in each mode, from one start file. Where ours fails, it is
# tried without what libraries may have got wrong, so that there is something to compare.
train() {
	model=$1 precision=$2; shift 2
	start=$starts/$model${simulated:+-small}.safetensors
	batches=4
	[ "$model" != resnet50 ] || batches=2 # 154 MB each
	if [ ! -e "$start" ]; then
		step "start of $model" 120 "$here/bench" start "$(spec "$model")" "$start.part" --batches "$batches"
		[ "$code" = 0 ] && mv "$start.part" "$start" || return
	fi
	steps='--check 20 --rounds 5 --steps 10'
	[ "$precision" != f32 ] || steps='--check 20 --rounds 3 --steps 5'
	[ -z "$simulated" ] || steps='--check 3 --rounds 1 --steps 2'
	ours "$model" "$precision" "$device"
	for less in /noaux /nodnn /nodnn/noaux; do
		case $code in 0 | 75) break ;; esac
		[ -z "$unfinished" ] || break
		ours "$model" "$precision" "$device$less"
	done
	case $model:$precision:$code in
	gpt2:bf16:0 | resnet50:bf16:0) ours "$model" "$precision" "$device/noaux" ;;
	esac
	case $model:$precision:$code in
	gpt2:bf16:0) ours "$model" "$precision" "$device/vary" ;;
	esac
	have_torch || { skip "$model:$precision torch" "$python has no torch"; set --; }
	for mode; do
		profile=
		[ "$mode:$precision" != eager:bf16 ] || profile=--profile
		# shellcheck disable=SC2086
		lines=20 step "$model:$precision torch $mode" 280 "$python" "$here/torch/train.py" "$start" --device "$torch_device" --precision "$precision" --mode "$mode" $steps $profile --into "$out/results.jsonl"
	done
	table
}

table() {
	[ -e "$out/results.jsonl" ] || return 0
	if "$here/bench" table "$out/results.jsonl" >"$out/table.new" 2>>"$out/log.txt"; then
		mv "$out/table.new" "$out/table.md"
	else wrong "table"; fi
}

part() {
	case $1 in
	checks) for p in probe answers ptxas flavours kernels suite zoo libraries learn; do whole $p; done ;;
	sanitizer) for p in memcheck racecheck initcheck synccheck; do whole $p; done ;;
	speed) for p in copy gemm attention filters bandwidth replay torchkernels tune; do whole $p; done ;;
	training) for m in mlp gpt2 resnet50; do part $m; done; whole gpt2:autotune; whole gpt2:50257 ;;
	next)
		for p in $order; do
			if grep -qx "$p" "$out/finished.txt" 2>/dev/null; then continue; fi
			[ $((until - $(date +%s))) -ge 20 ] || { say "-- no time left; next: $p"; break; }
			whole $p
		done
		;;
	probe)
		command -v nvidia-smi >/dev/null && step nvidia-smi 20 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv
		lines=20 step devices 60 "$here/ampc" devices
		lines=20 tests probe 60 gputest 'TestProbe$'
		;;
	answers) lines=50 tests answers 120 gputest 'TestAnswers$|TestReluAtItsEnds$' ;;
	ptxas) ptxas_all ;;
	flavours) tests flavours 180 gputest 'TestFlavours$' ;;
	kernels) tests kernels 300 gputest 'TestKernels$|TestGraph$|TestTrainingStep$|TestGemm$|TestConv$|TestAttention$' ;;
	suite) tests suite 400 suite 'TestSuite' ;;
	zoo) lines=60 tests zoo 400 suite 'TestZoo$' ;;
	libraries) tests libraries 200 suite 'TestLibraries$|TestZooSome$|TestAlgorithmsAreKept$' ;;
	learn)
		options='layers=4&dim=128&seq=128' steps=500
		[ -z "$simulated" ] || options='layers=1&heads=2&dim=8&batch=2&seq=8' steps=3
		lines=12 step learn 200 "$here/ampc" train "zoo:gpt?$options" --device "$device" --text "$here/torch/models.py" --text "$here/run.sh" --steps "$steps" --out "$starts/learn" --quiet
		;;
	memcheck | racecheck | initcheck | synccheck) sanitizer "$1" ;;
	copy) lines=10 tests copy 60 gputest 'TestCopy$' ;;
	bandwidth) lines=200 tests bandwidth 200 gputest 'TestBandwidth$' ;;
	gemm) lines=60 tests gemm 200 gputest 'TestGemmSpeed$' ;;
	attention) lines=12 tests attention 120 gputest 'TestAttentionSpeed$' ;;
	filters) lines=40 tests filters 120 gputest 'TestConvSpeed$' ;;
	replay) tests replay 60 gputest 'TestReplayCost$' ;;
	torchkernels)
		if [ -n "$simulated" ]; then skip torchkernels "needs a GPU"
		elif ! have_torch; then skip torchkernels "$python has no torch"
		else
			lines=20 tests "torchkernels, ours" 120 gputest 'TestStreaming$'
			lines=20 step torchkernels 120 "$python" "$here/torch_kernels.py"
		fi
		;;
	tune)
		lines=40 step tune 240 "$here/ampc" plan "zoo:$(spec gpt2)" --policy mixed-bf16 --weight-copies --device "$device"
		;;
	mlp | gpt2 | resnet50) for p in f32 tf32 f16 bf16; do whole "$1:$p"; done ;;
	gpt2:profile | resnet50:profile) profile "${1%%:*}" ;;
	gpt2:autotune) if [ -n "$simulated" ]; then skip "$1" "needs a GPU"; else train gpt2 bf16 max-autotune; fi ;;
	gpt2:50257) train gpt2-50257 bf16 eager compile ;;
	mlp:* | gpt2:* | resnet50:*)
		case ${1#*:} in
		f32 | tf32 | f16 | bf16) if [ -n "$simulated" ]; then train "${1%%:*}" "${1#*:}" eager; else train "${1%%:*}" "${1#*:}" eager compile; fi ;;
		*) wrong "no precision in $1" ;;
		esac
		;;
	table)
		if [ -e "$out/results.jsonl" ]; then table; echo "table: ok" >>"$out/summary.txt"; cat "$out/table.md"
		else skip table "no results yet"; fi
		;;
	*) wrong "no part $1" ;;
	esac
}

# whole PART: one that has run to its end, whatever came of it, is not taken again by next.
whole() {
	unfinished=
	part "$1"
	[ -n "$unfinished" ] || echo "$1" >>"$out/finished.txt"
}

# What matters most first: what runs and which libraries there are, what these take and how fast products and
# attention are, the rate of a copy, kernels right before kernels fast, then the numbers that are asked for.
order="probe answers flavours gemm attention filters copy kernels libraries
gpt2:bf16 gpt2:profile resnet50:bf16 resnet50:profile gpt2:f16 resnet50:f16 memcheck
bandwidth replay torchkernels mlp:bf16 mlp:f16 gpt2:tf32 gpt2:f32 suite
zoo learn tune ptxas resnet50:tf32 resnet50:f32 mlp:tf32 mlp:f32 gpt2:50257 gpt2:autotune racecheck initcheck synccheck table"

[ $# -gt 0 ] || set -- next
say "run.sh on $device, $(date -u '+%Y-%m-%d %H:%M:%S') UTC: $*"
for p; do
	case $p in
	next | checks | sanitizer | speed | training | mlp | gpt2 | resnet50) part "$p" ;; # of parts
	*) whole "$p" ;;
	esac
done
if [ $failed = 0 ]; then say "ALL PASSED"; else say "SOMETHING FAILED:"; grep FAILED "$out/summary.txt" | tee -a "$out/log.txt"; fi
exit $failed
