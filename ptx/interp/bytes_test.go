package interp

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"ampc/ptx"
	"ampc/ptx/ptxtest"
)

// streaming is how much more than the least a kernel may move that reads each input and writes each
// output once.
const streaming = 1.05

// again lists the generators that move some bytes more than once by their nature: at most so many times
// the least in any case, and why. Neighbouring threads read what they share from a cache.
var again = map[string]struct {
	factor float64
	why    string
}{
	"CrossEntropy.Fused":    {1.6, "with label smoothing a row is read twice, the second time from a cache"},
	"Embedding.Order":       {4, "the list is read twice and written once for each of two digits"},
	"Scatter.Build":         {1.9, "sums are read before they are written, elements with one id each time"},
	"CumMax.Build":          {1.3, "the largest element so far is read again when it is stored"},
	"TopK.Build":            {5, "the row is read once for each of the k"},
	"Pad.Build":             {1.15, "the edge is read for each copy of it"},
	"Pool.Max":              {1.6, "windows overlap"},
	"PoolOf.Max":            {1.84, "windows overlap, and each vector of channels reads what is the same for all positions"},
	"Pool.Avg":              {1.4, "windows overlap"},
	"Pool.MaxBackward":      {2.8, "a position reads every window over it"},
	"Pool.AvgBackward":      {1.7, "a position reads every window over it"},
	"AdaptivePool.Forward":  {1.3, "parts overlap"},
	"AdaptivePool.Backward": {1.45, "parts overlap"},
	"Resize.Forward":        {1.8, "an element is sampled more than once"},
	"Resize.Backward":       {1.6, "an element was sampled more than once"},
	"Unfold.Forward":        {1.5, "windows overlap"},
	"Merge.Build":           {1.4, "the means of the parts are read again for the squares around their mean"},
}

// exceptions are cases of streaming kernels too small for what they read once per row or per team to be
// lost in the rest.
var exceptions = map[string]struct {
	factor float64
	why    string
}{
	"bias_gelu_64x96":                 {2, "each of 64 rows reads the bias, in f32 beside 16-bit elements"},
	"norm_fwd_6x1023_f16":             {2.3, "six teams each read scale and bias for one row"},
	"norm_fwd_6x4097_f16":             {2.3, "six teams each read scale and bias for one row"},
	"norm_fwd_res_6x1023_f32":         {1.55, "six teams each read scale and two biases for one row"},
	"norm_fwd_res_6x4097_f32":         {1.55, "six teams each read scale and two biases for one row"},
	"norm_fwd_res_6x768_f32":          {1.55, "six teams each read scale and two biases for one row"},
	"norm_fwd_res_6x640_bf16":         {1.75, "six teams each read scale and two biases for one row"},
	"norm_rms_fwd_5x512_f32":          {1.5, "five teams each read the scale for one row"},
	"norm_fwd_5x4096_f32":             {1.7, "each long row reads scale and bias"},
	"norm_fwd_3x20000_bf16":           {2.6, "rows that do not fit into registers are read three times"},
	"norm_bwd_7x1023_f32":             {1.11, "four teams each read the scale"},
	"norm_bwd_7x4097_f32":             {1.11, "four teams each read the scale"},
	"norm_bwd_2x9000_f32":             {1.17, "each long row reads the scale"},
	"norm_bwd_2x20000_f32":            {2.01, "rows that do not fit into registers are read twice, each time with the scale"},
	"norm_bwd_res_7x1023_f32":         {1.09, "four teams each read the scale"},
	"norm_bwd_res_7x4097_f32":         {1.09, "four teams each read the scale"},
	"norm_bwd_res_11x768_f32":         {1.06, "four teams each read the scale"},
	"norm_bwd_res_sums_9x1023_f32":    {1.07, "four teams each read the scale"},
	"norm_bwd_res_sums_9x4097_f32":    {1.07, "four teams each read the scale"},
	"norm_rms_bwd_9x2048_bf16":        {1.07, "two teams each read the scale"},
	"softmax_bwd_2x20000_f32":         {1.61, "rows that do not fit into registers are read twice"},
	"softmax_bwd_log_2x17001_f32":     {1.34, "rows that do not fit into registers: dy is read twice"},
	"imagesums_2x50x64":               {1.65, "the statistics of an image's channels at each position, from a cache"},
	"xent_bwd_5x1023_f16":             {1.08, "four numbers of a row for every warp"},
	"xent_bwd_6x1000_bf16_weighted":   {2.58, "each row reads the classes' weights twice, which a cache holds"},
	"xent_fused_6x1000_bf16_weighted": {4.2, "a row is read twice, and the classes' weights three times, which a cache holds"},
	"xent_fused_7x1000_bf16_weighted": {4.2, "a row is read twice, and the classes' weights three times, which a cache holds"},
	"xent_bwd_7x1000_bf16_weighted":   {2.14, "each row reads the classes' weights twice, which a cache holds"},
	"embed_bwd_3x1023_41_f16":         {1.06, "every 32 columns look for their rows"},
	"embed_bwd_3x1023_41_f16_to":      {1.06, "every 32 columns look for their rows"},
	"embed_bwd_3x4097_41_f16":         {1.08, "every 32 columns look for their rows"},
	"embed_bwd_1030x4_33_f32":         {1.55, "every two rows of 16 bytes are looked for"},
	"embed_bwd_1030x4_33_f32_add":     {1.13, "every two rows of 16 bytes are looked for"},
	"col_sums_35_1023":                {1.06, "eight warps of a block read the table for 4 KB"},
	"col_sums_35_4097":                {1.06, "eight warps of a block read the table for 4 KB"},
	"moments_200x64x1":                {1.17, "every thread reads the first row of its part"},
	"im2col_nchw_2x2x1x1023":          {1.81, "windows overlap, and the f32 elements that are read are stored in 16 bits"},
	"im2col_nchw_2x2x1x4097":          {1.81, "windows overlap, and the f32 elements that are read are stored in 16 bits"},
	"bnsums_f16_3_100x256x1":          {1.21, "means and deviations for every 4 elements of a thread"},
	"spread_nhwc_2x8x5x33":            {1.63, "each position reads the outputs of four windows, from a cache"},
	"spread_nhwc_2x8x7x33":            {1.07, "positions without an output read a neighbour's, from a cache"},
	"bnsums_f16_3_100x256x1_bits":     {1.23, "means and deviations for every 4 elements of a thread"},
	"bnsums_f32_2_3x1023x1":           {2.45, "mean and deviation for every element of a thread"},
	"bnsums_f32_2_3x4097x1":           {2.45, "mean and deviation for every element of a thread"},
}

// TestBytesMoved counts what the loads and stores of every case of more than 16 KiB move: inputs and
// outputs once, within 5%, except for the tables above; and where the shape lets a kernel stream, nine
// tenths of it 16 bytes at a time.
func TestBytesMoved(t *testing.T) {
	worst := map[string]float64{}
	for _, c := range ptxtest.Cases() {
		if testing.Short() && !c.Streams {
			continue
		}
		_, st, least := runCase(t, c, ptx.SM80, 0)
		if least < 16<<10 && !c.Streams {
			continue
		}
		moved := st.LoadBytes + st.StoreBytes
		factor, limit := float64(moved)/float64(least), streaming
		if a, ok := again[c.Kernel]; ok {
			limit = a.factor
		}
		if e, ok := exceptions[c.Name]; ok {
			limit = e.factor
		} else {
			worst[c.Kernel] = max(worst[c.Kernel], factor)
		}
		if factor > limit {
			t.Errorf("%s moves %d bytes, %.3f times the least; the limit is %g", c.Name, moved, factor, limit)
		}
		if wide := 16 * (st.LoadWidths[16] + st.StoreWidths[16]); c.Streams && float64(wide) < 0.9*float64(moved) {
			t.Errorf("%s moves %d of %d bytes in 16-byte accesses", c.Name, wide, moved)
		}
	}
	for name, f := range worst {
		if a, ok := again[name]; ok && f > streaming {
			t.Logf("%-22s %.3f times the least: %s", name, f, a.why)
		} else {
			t.Logf("%-22s %.3f times the least", name, f)
		}
	}
}

// BenchmarkEmbeddingGrad counts what the two kernels of GPT-2's embedding move: 16 × 1024 ids that are
// Zipf distributed, 50,257 rows of 768, gradients in bf16.
func BenchmarkEmbeddingGrad(b *testing.B) {
	s := ptx.Embedding{Name: "k", Vocab: 50257, Cols: 768, Tokens: 16 << 10, IDs: ptx.Int32, In: ptx.BFloat16, Out: ptx.Float32}
	mem, zipf := NewMemory(), rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 3, uint64(s.Vocab-1))
	alloc := func(bytes int) uint64 {
		at := mem.Alloc(bytes)
		if err := mem.Fill(at, 0, bytes); err != nil {
			b.Fatal(err)
		}
		return at
	}
	var ids []byte
	for range s.Tokens {
		ids = binary.LittleEndian.AppendUint32(ids, uint32(zipf.Uint64()))
	}
	id, order := alloc(len(ids)), alloc(8*s.Ordered())
	dy, table := alloc(2*s.Tokens*s.Cols), alloc(4*s.Vocab*s.Cols)
	if err := mem.Write(id, ids); err != nil {
		b.Fatal(err)
	}
	moved := int64(0)
	launch := func(build func(ptx.Flavour) (*ptx.Launch, error), args ...uint64) {
		l, err := build(ptx.SM90)
		if err != nil {
			b.Fatal(err)
		}
		st, err := compile(b, l, ptx.SM90).Run(mem, Config{Grid: l.Grid, Block: l.Block, Args: args}, Options{NoRaces: true})
		if err != nil {
			b.Fatal(err)
		}
		moved += st.LoadBytes + st.StoreBytes
	}
	for b.Loop() {
		moved = 0
		launch(s.Order, id, order)
		launch(s.Backward, dy, order, table)
	}
	least := 4*s.Tokens + 2*s.Tokens*s.Cols + 4*s.Vocab*s.Cols
	b.ReportMetric(float64(moved)/1e6, "MB")
	b.ReportMetric(float64(moved)/float64(least), "×least")
}
