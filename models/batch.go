package models

import (
	"math"
	"math/rand/v2"

	"ampc"
	"ampc/ir"
)

// Batch makes batch i of a small task that the model can learn, with nothing
// read from outside: images are a pattern per class under noise, text goes from
// each token to one that follows it nine times in ten, masked tokens are a
// seventh of the text, videos show shapes that move, volumes hold balls and boxes
// under noise. The same i gives the same batch.
func (z *Zoo) Batch(i int64) ampc.Feed {
	t := &taskBatch{z: z, pattern: rand.New(rand.NewPCG(7, 0)), r: rand.New(rand.NewPCG(uint64(i), 1))}
	switch {
	case z.has("next"):
		ids := t.text(1)
		return ampc.Feed{"ids": t.columns(ids, 0), "next": t.columns(ids, 1)}
	case z.has("kinds"):
		return t.masked()
	case z.has("future"):
		return t.videos()
	case z.has("voxels"):
		return t.volumes()
	case z.has("y"):
		return t.classes()
	case z.Name == "unet":
		x := t.images(nil)
		noise := t.normal(len(x))
		for k := range x {
			x[k] += noise[k]
		}
		return ampc.Feed{"x": x, "noise": noise}
	}
	return ampc.Feed{"x": t.images(nil), "noise": t.normal(z.elements("noise"))}
}

// has reports whether the model has an input of that name.
func (z *Zoo) has(input string) bool {
	v := z.Model.Graph().Var(input)
	return v != nil && v.Kind == ir.Input
}

func (z *Zoo) elements(input string) int {
	return int(z.Model.Graph().Var(input).Type.Shape.Elements())
}

// taskBatch draws one batch. pattern gives what all batches share.
type taskBatch struct {
	z          *Zoo
	pattern, r *rand.Rand
}

func (t *taskBatch) normal(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(t.r.NormFloat64())
	}
	return x
}

// images are noise around the pattern of each example's class, around a single
// pattern where there are no classes. A pattern of an image is coarse: a number
// per channel and sixteenth of the image.
func (t *taskBatch) images(class []int32) []float32 {
	dims := t.z.Model.Graph().Var("x").Type.Shape.Dims()
	n, size := t.z.elements("x"), t.z.elements("x")/int(dims[0])
	patterns := make([]float32, size*max(t.z.Options.Int("classes"), 1))
	for i := range patterns {
		patterns[i] = float32(t.pattern.NormFloat64())
	}
	strength := float32(5 / math.Sqrt(float64(size))) // classes overlap a little, whatever the size
	if len(dims) == 4 {
		strength *= 2 // and are far apart in the coarse
	}
	x := t.normal(n)
	for i := range x {
		k := 0
		if class != nil {
			k = int(class[i/size])
		}
		x[i] += strength * patterns[k*size+coarse(dims[1:], i%size)]
	}
	return x
}

// coarse is the first element of the part of an image that element i is in.
func coarse(dims []ir.Dim, i int) int {
	if len(dims) != 3 {
		return i
	}
	h, w := int(dims[1]), int(dims[2])
	row, col := i/w%h, i%w
	return i - i%(h*w) + (row*4/h*h/4)*w + col*4/w*w/4
}

func (t *taskBatch) classes() ampc.Feed {
	y := make([]int32, t.z.Options.Int("batch"))
	for i := range y {
		y[i] = int32(t.r.IntN(t.z.Options.Int("classes")))
	}
	return ampc.Feed{"x": t.images(y), "y": y}
}

// text is a batch of rows of tokens, more tokens longer than the model's.
func (t *taskBatch) text(more int) [][]int32 {
	vocab := t.z.Options.Int("vocab")
	next := t.pattern.Perm(vocab)
	rows := make([][]int32, t.z.Options.Int("batch"))
	for i := range rows {
		token := t.r.IntN(vocab)
		for range t.z.Options.Int("seq") + more {
			rows[i] = append(rows[i], int32(token))
			token = next[token]
			if t.r.IntN(10) == 0 {
				token = t.r.IntN(vocab)
			}
		}
	}
	return rows
}

// columns joins the rows from a column on, as many as the model takes.
func (t *taskBatch) columns(rows [][]int32, from int) []int32 {
	var out []int32
	for _, row := range rows {
		out = append(out, row[from:from+t.z.Options.Int("seq")]...)
	}
	return out
}

// masked hides tokens, at least one, behind the last one of the vocabulary; only
// those count.
func (t *taskBatch) masked() ampc.Feed {
	const ignore = -100
	ids := t.columns(t.text(0), 0)
	kinds, labels := make([]int32, len(ids)), make([]int32, len(ids))
	hidden := 0
	for i, id := range ids {
		labels[i] = ignore
		if t.r.IntN(7) == 0 || i == len(ids)-1 && hidden == 0 { // without any, the mean over labels is 0/0
			labels[i], ids[i] = id, int32(t.z.Options.Int("vocab")-1)
			hidden++
		}
	}
	return ampc.Feed{"ids": ids, "kinds": kinds, "labels": labels}
}
