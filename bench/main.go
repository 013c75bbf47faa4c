// Command bench trains models of the zoo beside PyTorch: from one file with the
// same start and the same batches, with the same optimizer, and with the same
// things measured, on a GPU or on the CPU. It runs where there is no Go.
//
//	bench start SPEC FILE          writes the start of a model of the zoo and batches for it
//	bench train FILE [flags]       trains from it and adds a line to the results
//	bench table RESULTS...         makes one table of result lines, ours and PyTorch's
//	bench ops FILE                 runs every op of a comparison and writes operands, results and dtypes
//	bench onnx [flags]             compares inference of ONNX models with onnxruntime's
//	bench serve [flags]            measures requests a second of one loaded model, and their latencies
//	bench ranks SPEC [flags]       compares ranks under MPI with one process of as many threads
//	bench link [flags]             fits the model of a link to sums over ranks under MPI
//	bench scales FILE              trains 300 steps under the torch-* presets and writes start and loss scales
//
// bench/torch/train.py reads the same FILE and adds lines of the same form; ddp.py trains from it
// on several ranks for bench ranks -beside;
// bench/torch/ops.py and scales.py do what bench ops and scales did and print where
// the two differ.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

const usage = "want start SPEC FILE, train FILE [flags], table RESULTS..., ops FILE, scales FILE, ranks SPEC [flags], link [flags], serve [flags] or onnx [flags]"

func run(args []string, out io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("%s", usage)
	}
	f := flag.NewFlagSet("bench "+args[0], flag.ContinueOnError)
	f.SetOutput(out)
	switch args[0] {
	case "start":
		batches := f.Int("batches", 4, "batches in the file, taken in turn")
		rest, err := parse(f, args[1:], 2, "SPEC FILE")
		if err != nil {
			return err
		}
		return writeStart(rest[0], rest[1], *batches)
	case "train":
		var t training
		t.flags(f)
		rest, err := parse(f, args[1:], 1, "FILE")
		if err != nil {
			return err
		}
		return t.run(rest[0], out)
	case "onnx":
		var b inference
		b.flags(f)
		if err := f.Parse(args[1:]); err != nil {
			return err
		}
		return b.run(out)
	case "serve":
		var b serving
		b.flags(f)
		if err := f.Parse(args[1:]); err != nil {
			return err
		}
		return b.run(out)
	case "ranks":
		var b rankBench
		b.flags(f)
		rest, err := parse(f, args[1:], 1, "SPEC")
		if err != nil {
			return err
		}
		return b.run(rest[0], out)
	case "link":
		var b linkBench
		b.flags(f)
		if _, err := parse(f, args[1:], 0, "no arguments"); err != nil {
			return err
		}
		return b.run(out)
	case "ops":
		rest, err := parse(f, args[1:], 1, "FILE")
		if err != nil {
			return err
		}
		return writeOps(rest[0])
	case "scales":
		rest, err := parse(f, args[1:], 1, "FILE")
		if err != nil {
			return err
		}
		return writeScales(rest[0])
	case "table":
		rest, err := parse(f, args[1:], -1, "RESULTS...")
		if err != nil {
			return err
		}
		return printTable(out, rest)
	}
	return fmt.Errorf("no command %q: %s", args[0], usage)
}

// parse reads flags that stand before, between and behind n arguments (-1: one or more).
func parse(f *flag.FlagSet, args []string, n int, want string) (rest []string, err error) {
	for len(args) > 0 {
		if err := f.Parse(args); err != nil {
			return nil, err
		}
		if args = f.Args(); len(args) > 0 {
			rest, args = append(rest, args[0]), args[1:]
		}
	}
	if len(rest) != n && (n >= 0 || len(rest) == 0) {
		return nil, fmt.Errorf("%s: want %s, got %q", f.Name(), want, rest)
	}
	return rest, nil
}
