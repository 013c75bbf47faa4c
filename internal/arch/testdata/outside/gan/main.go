// Command gan learns to draw images like those of a folder, DIR/CLASS/*.png: two steps over one
// model: gan DIR STEPS.
package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"strconv"

	"ampc"
	"ampc/data"
	"ampc/data/images"
)

const batch, size, latent = 16, 8, 16

func main() {
	ctx, steps := context.Background(), must(strconv.Atoi(os.Args[2]))
	set := must(images.Folder(os.Args[1], images.Options{Height: size, Width: size, Gray: true, Mean: []float64{0.5}, Std: []float64{0.5}}))
	loader := must(data.NewLoader(set, data.Options{Batch: batch, Shuffle: true, Last: data.Drop}))

	m := ampc.New("gan", ampc.Seed(1))
	defer m.Close()
	drawn, noise := m.Input("x", ampc.F32, batch, 1, size, size), m.Input("noise", ampc.F32, batch, latent)
	g := m.Scope("gen")
	made := g.Tanh(g.Linear("fc2", g.Relu(g.Linear("fc1", noise, 64)), size*size))
	judge := m.Shared("dis", func(m *ampc.Model, x ...ampc.Tensor) ampc.Tensor {
		return m.Linear("fc2", m.LeakyRelu(m.Linear("fc1", x[0], 64), 0.2), 1)
	})
	onDrawn, onMade := judge(m.Reshape(drawn, batch, size*size)), judge(made)
	one, zero := m.Full(ampc.F32, 1, batch, 1), m.Full(ampc.F32, 0, batch, 1)
	train := func(scope string, loss ampc.Tensor) *ampc.Step { // of the parameters of a scope alone
		adam := ampc.Adam()
		adam.Beta1 = 0.5
		return must(m.Train(ampc.TrainConfig{
			Name: scope, Groups: []ampc.Group{{Pattern: scope, Optimizer: adam, LR: ampc.Constant(2e-3)}},
			Policy: ampc.MixedF16(), Outputs: []ampc.Output{{Tensor: made}},
		}, ampc.Loss{Value: loss}))
	}
	dis := train("dis", m.Add(m.BCEWithLogits(onDrawn, one), m.BCEWithLogits(onMade, zero)))
	gen := train("gen", m.BCEWithLogits(onMade, one))

	r := rand.New(rand.NewPCG(1, 2))
	done := 0
	for b, err := range loader.Epochs(ctx, 0) { // without end
		z := make([]float32, batch*latent)
		for i := range z {
			z[i] = float32(r.NormFloat64())
		}
		feed := ampc.Feed{"x": must(b, err).Feed["x"], "noise": z}
		must(dis.Run(ctx, feed))
		result := must(gen.Run(ctx, feed))
		if done++; done == steps {
			pixels := must(result.Value(made)).Floats()
			fmt.Printf("loss %.2f, left %.2f, right %.2f\n", must(result.Wait(ctx)).Loss, mean(pixels, 0), mean(pixels, size/2))
			return
		}
	}
}

// mean is that of the columns of a half of the images, from -1 to 1.
func mean(pixels []float32, from int) (sum float64) {
	for i, p := range pixels {
		if x := i % size; x >= from && x < from+size/2 {
			sum += float64(p) / float64(len(pixels)/2)
		}
	}
	return sum
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
