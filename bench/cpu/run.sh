#!/bin/sh
# Runs the models of docs/performance.md beside PyTorch on this machine's CPU, with the same number
# of threads each, from the same start and batches, and prints one table. Go and a python3 with torch
# ($AMPC_PYTHON names another) must be here.
#
#	bench/cpu/run.sh [--threads N[,N...]] OUT [MODEL:PRECISION...]
#
# OUT: a folder; every model in f32, f16 and bf16 where none is named. Threads: 1 where nothing is said; with 1,2
# each runs with one and with two, and the table has how much two gain. Models named infer- and
# decode- are not trained: the loss is computed, of one image, of 128 tokens, or of one row by products
# of as many columns as the name says. PyTorch runs with channels
# first and last, and several threads of it that wait spin or sleep (where they spin, OpenBLAS's and OpenMP's take
# the processors from each other: 20 times slower); the fastest counts.
set -eu
threads=1
if [ "${1:-}" = --threads ]; then
	threads=${2:?--threads: how many}
	shift 2
fi
case ,$threads, in *[!0-9,]* | *,0* | *,,*) echo "run.sh: --threads $threads: want numbers like 1,2" >&2; exit 2 ;; esac
python=${AMPC_PYTHON:-python3}
mkdir -p "${1:?want a folder for the results}"
out=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/../.."
"$python" -c 'import torch.nn' || { echo "run.sh: $python has no torch; AMPC_PYTHON names another" >&2; exit 1; }
go build -o "$out/bench" ./bench
cp bench/torch/*.py "$out/"

spec() {
	case $1 in
	mlp) echo 'mlp?batch=128&hidden=512&layers=2' ;;
	lenet) echo 'lenet?batch=32&conv1=20&conv2=50&pad=0&fc1=500&fc2=0' ;;
	gpt) echo 'gpt?layers=4&dim=256&heads=8&seq=128&batch=8&vocab=256' ;;
	resnet18) echo 'resnet?batch=32' ;;
	unet3d) echo 'unet3d?width=32' ;;
	convlstm) echo 'convlstm?width=64' ;;
	infer-resnet18) echo 'resnet?batch=1' ;;
	infer-resnet50) echo 'resnet50?batch=1' ;;
	infer-gpt2) echo 'gpt2?batch=1&seq=128' ;;
	decode-768) echo 'mlp?batch=1&in=768&hidden=768&layers=23&classes=768' ;;
	decode-3072) echo 'mlp?batch=1&in=768&hidden=3072&layers=1&classes=768' ;;
	decode-4096) echo 'mlp?batch=1&in=4096&hidden=4096&layers=3&classes=4096' ;;
	decode-11008) echo 'mlp?batch=1&in=4096&hidden=11008&layers=1&classes=4096' ;;
	*) echo "run.sh: no model $1: want mlp, lenet, gpt, resnet18, unet3d, convlstm, infer-resnet18, infer-resnet50, infer-gpt2, decode-768, decode-3072, decode-4096 or decode-11008" >&2; exit 2 ;;
	esac
}

rounds() {
	case $1 in
	gpt) echo '--rounds 5 --steps 4' ;;
	infer-*) echo '--infer --rounds 9 --steps 8' ;;
	decode-*) echo '--infer --rounds 9 --steps 30' ;;
	resnet18 | unet3d | convlstm) echo '--rounds 3 --steps 1' ;;
	*) echo '--rounds 9 --steps 30' ;;
	esac
}

# train THREADS MODEL PRECISION: ours, then PyTorch's, each in a process of its own.
train() {
	export OMP_NUM_THREADS="$1" OPENBLAS_NUM_THREADS="$1" MKL_NUM_THREADS="$1"
	shift
	start=$out/$1.safetensors
	[ -e "$start" ] || "$out/bench" start "$(spec "$1")" "$start"
	# shellcheck disable=SC2046
	set -- "$1" "$2" --device cpu --threads "$OMP_NUM_THREADS" --check 3 --precision "$2" $(rounds "$1") --into
	model=$1 precision=$2
	shift 2
	"$out/bench" train "$start" "$@" "$out/results.jsonl"
	for layout in '' --planes; do
		case $model:$layout in mlp:--planes | gpt:--planes | infer-gpt2:--planes | decode-*:--planes) continue ;; esac
		for wait in ACTIVE PASSIVE; do
			[ "$OMP_NUM_THREADS $wait" != '1 PASSIVE' ] || continue
			# shellcheck disable=SC2086
			OMP_WAIT_POLICY=$wait "$python" "$out/train.py" "$start" "$@" "$out/results.jsonl" --mode eager $layout
		done
	done
}

[ $# -gt 0 ] || set -- mlp:f32 lenet:f32 gpt:f32 resnet18:f32 mlp:f16 lenet:f16 gpt:f16 resnet18:f16 mlp:bf16 lenet:bf16 gpt:bf16 resnet18:bf16
for which; do
	spec "${which%%:*}" >/dev/null
	for n in $(echo "$threads" | tr , ' '); do
		train "$n" "${which%%:*}" "${which#*:}"
	done
done
"$out/bench" table "$out/results.jsonl" | tee "$out/table.md"
