// Command folder trains a classifier on a folder of images, DIR/CLASS/*.png, and continues where
// it was stopped: folder DIR OUT EPOCHS.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	"ampc"
	"ampc/data"
	"ampc/data/images"
	"ampc/fit"
)

const batch, size = 16, 16

func main() {
	dir, out, epochs := os.Args[1], os.Args[2], must(strconv.Atoi(os.Args[3]))
	options := images.Options{Height: size, Width: size, Shorter: size + 2, RandomCrop: true, Flip: true, Mean: images.ImageNetMean, Std: images.ImageNetStd}
	all := must(images.Folder(dir, options))
	train, held := data.Split(all, 0.2, 1)

	m := ampc.New("folder", ampc.Seed(1))
	defer m.Close()
	n := ampc.Dim("N")
	x, y := m.Input("x", ampc.F32, n, 3, size, size), m.Input("y", ampc.I32, n)
	h := x
	for i, channels := range []int{8, 16} {
		h = m.Conv2d(fmt.Sprint("conv", i), h, channels, 3, ampc.Conv2dOptions{Padding: 1, NoBias: true})
		h = m.MaxPool2d(m.Relu(m.BatchNorm(fmt.Sprint("norm", i), h)), 2)
	}
	logits := m.Linear("fc", m.ReduceMean(h, ampc.ReduceOptions{Axes: []int{2, 3}}), len(all.Classes()))
	loss := m.CrossEntropy(logits, y)
	batches := must(data.NewLoader(train, data.Options{Batch: batch, Shuffle: true, Seed: 1, OnBad: func(err error) error { log.Print(err); return nil }}))
	step := must(m.Train(ampc.TrainConfig{
		Optimizer: ampc.AdamW(0.01), LR: ampc.Constant(1e-2),
		Policy: ampc.MixedF16(), Sizes: ampc.Sizes{n: batch},
	}, ampc.Loss{Value: loss}))
	run := fit.Run{
		Model: m, Step: step, Data: batches, Epochs: epochs, BatchDim: n,
		Eval: &fit.Evaluation{
			Step: must(m.Infer(ampc.InferConfig{Policy: ampc.MixedF16(), Sizes: ampc.Sizes{n: batch}}, loss, logits)),
			Data: must(data.NewLoader(held, data.Options{Batch: batch, OnBad: data.Skip})),
			Metrics: []fit.Metric{
				fit.Mean("loss", loss), fit.Accuracy("accuracy", logits, "y"), fit.F1("f1", logits, "y"),
			},
		},
		Folder: out, Resume: true, Patience: 10, Progress: os.Stdout,
		Logs: []fit.Log{fit.CSV(out + "/log.csv"), fit.TensorBoard(out + "/tb")},
	}
	summary := must(run.Fit(context.Background()))
	fmt.Printf("%d steps, classes %q, accuracy %.2f\n", summary.Steps, all.Classes(), summary.Eval["accuracy"])
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
