package cpu

// indexKernels move elements by index.
var indexKernels = map[string]binder{
	"embedding":      bindEmbedding,
	"embedding_grad": bindEmbeddingGrad,
}

func bindEmbedding(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	dim := c.in[0].dims()[1]
	return func() { c.m.Gather(c.out[0].buf(), c.in[0].buf(), c.in[1].index(), dim) }, nil
}

func bindEmbeddingGrad(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	dim := c.out[0].dims()[1]
	return func() { c.m.ScatterAdd(c.out[0].buf(), c.in[0].buf(), c.in[1].index(), dim, true) }, nil
}
