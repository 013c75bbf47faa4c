// Command examples holds short programs over ampc's API, each in a file of its
// own and each run as a test:
//
//	go run ./examples            list them
//	go run ./examples gan        run one
package main

import (
	"fmt"
	"io"
	"os"
)

// example is one program; it prints what happened.
type example struct {
	name, about string
	run         func(w io.Writer) error
}

func examples() []example {
	return []example{
		{"mlp", "basic training", mlp},
		{"gpt", "a small GPT on text, mixed precision, loss scaling, clipping", gpt},
		{"oneline", "from f32 to mixed precision in one changed line", oneLine},
		{"clip", "clipping by norm and by value; reading the norm", clip},
		{"micro", "accumulation inside one program equals one large batch", micro},
		{"accumulate", "accumulation by hand", accumulate},
		{"gan", "two losses, two optimizers, a shared discriminator", gan},
		{"penalty", "a gradient penalty: a gradient inside the loss", penalty},
		{"customop", "an op of one's own with kernel, gradient and a pinned operand, inside a GPT", customOp},
		{"eval", "evaluation under the assignment of training, and a short last batch", evaluate},
		{"ema", "running averages of the weights, evaluated beside the weights", ema},
		{"export", "a model of one's own as text, for the commands", export},
		{"serve", "an HTTP server of a model, for requests of several goroutines", serve},
		{"explain", "why, what it costs and the proof, from the program itself", explain},
		{"replay", "a skipped step saved for ampc doctor, to $REPLAY", replay},
		{"resume", "save, continue, and get the same bits", resume},
		{"nan", "finding a NaN", findNaN},
		{"onlymixed", "a NaN that only f16 has, and what to keep in f32", onlyMixed},
		{"whichlayer", "which of twelve equal layers overflowed", whichLayer},
		{"adamhalf", "Adam with half-precision state divides by zero", adamHalf},
		{"batchnorm", "why batch norm is kept in f32, measured", batchNorm},
		{"scalednorm", "a gradient norm 65,536 times too large", scaledNorm},
		{"scaleroff", "what f16 loses without loss scaling", scalerOff},
		{"purehalf", "pure half precision fails where mixed does not", pureHalf},
		{"lowstate", "Adam with its state in half is refused", lowState},
	}
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, w io.Writer) error {
	if len(args) == 0 {
		for _, e := range examples() {
			fmt.Fprintf(w, "%-11s %s\n", e.name, e.about)
		}
		return nil
	}
	for _, e := range examples() {
		if e.name == args[0] {
			return e.run(w)
		}
	}
	return fmt.Errorf("no example %q", args[0])
}
