package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/spf13/cobra"

	"ampc"
	"ampc/internal/dataset"
	"ampc/models"
)

// task is a model with the data to train it on.
type task struct {
	model         *ampc.Model
	name          string // name for output
	config        ampc.TrainConfig
	losses        []ampc.Loss
	correct       ampc.Tensor // number of correct answers in a batch; absent: unknown
	spec          string      // with all options that depend on the data
	source        string      // description of the data for output
	unit          string      // name of the examples: tokens, images, volumes or videos
	unitsPerBatch int
	epoch         int64             // batches that have each record once; 0: they are drawn without end
	steps         int               // by default
	digest        string            // of what is trained on
	meta          map[string]string // what a checkpoint needs to be used again

	batch   func(i int64) (ampc.Feed, error)
	heldOut func(ctx context.Context, eval *ampc.Step) (loss, accuracy float64, err error)
	sample  func(ctx context.Context, trained *ampc.Model) (string, error) // nil: there is no sample to show
}

// of sets the task to train a zoo model.
func (t task) of(z *models.Zoo) task {
	t.model, t.name, t.config, t.losses, t.correct = z.Model, "zoo:"+z.Name, z.Steps[0].Config, z.Steps[0].Losses, z.Metrics["correct"]
	return t
}

// newTask reads the data that the flags name and opens spec for it; "" is the default model for
// that kind of data.
func newTask(c *cobra.Command, spec string, f *trainFlags) (task, error) {
	if len(f.data) > 0 && len(f.text) > 0 {
		return task{}, usagef("--text and --data exclude each other")
	}
	if spec == "" {
		spec = "zoo:gpt"
		if len(f.data) > 0 {
			spec = "zoo:lenet"
		}
	}
	if !strings.HasPrefix(spec, "zoo:") {
		return fileTask(c, spec, f)
	}
	if len(f.losses) > 0 || len(f.dims) > 0 || f.optimizer != "" {
		return task{}, usagef("%s: --loss, --dim and --optimizer are for model files", spec)
	}
	name, query, _ := strings.Cut(strings.TrimPrefix(spec, "zoo:"), "?")
	switch name {
	case "gpt", "gpt2", "lstm":
		if len(f.data) > 0 {
			return task{}, usagef("zoo:%s trains on text: use --text", name)
		}
		return textTask(name, query, f)
	case "mlp", "lenet", "resnet", "resnet8", "resnet50", "vit":
		if len(f.data) == 0 {
			return task{}, usagef("zoo:%s trains on labelled images: give them with --data", name)
		}
		return imageTask(name, query, f)
	}
	if _, ok := drawnScenes[name]; ok {
		return sceneTask(name, query, f)
	}
	if _, err := models.Open(name + "?" + query); err != nil {
		return task{}, err
	}
	return task{}, fmt.Errorf("zoo:%s: there is no data to train it on here; train it from Go", name)
}

// withDefaults adds the options that a query does not set.
func withDefaults(query string, options ...string) string {
	for _, o := range options {
		key, _, _ := strings.Cut(o, "=")
		if !strings.Contains("&"+query, "&"+key+"=") {
			query = strings.TrimPrefix(query+"&"+o, "&")
		}
	}
	return query
}

const (
	defaultTextLimit = 4 << 20 // size of the default corpus in bytes
	maxVocab         = 256
	heldShare        = 0.1
)

func textTask(name, query string, f *trainFlags) (task, error) {
	var text dataset.Text
	var err error
	if len(f.text) > 0 {
		text, err = dataset.ReadText(0, f.text...)
	} else {
		text, err = dataset.GoSource(defaultTextLimit)
	}
	if err != nil {
		return task{}, err
	}
	vocab, err := vocabFor(text.Content, f.from)
	if err != nil {
		return task{}, err
	}
	size := (vocab.Len() + 7) / 8 * 8 // 16-bit products are fastest with multiples of 8
	query = withDefaults(query, fmt.Sprintf("vocab=%d", size), "batch=16")
	z, err := f.open(name, query)
	if err != nil {
		return task{}, err
	}
	if z.Options.Int("vocab") < vocab.Len() {
		return task{}, fmt.Errorf("zoo:%s: the text has %d characters, vocab=%d is too few", name, vocab.Len(), z.Options.Int("vocab"))
	}
	batch, seq := z.Options.Int("batch"), z.Options.Int("seq")
	train, held, err := splitText(text, vocab, f.heldOut, seq)
	if err != nil {
		return task{}, err
	}
	all := batch * f.parts()
	w := &dataset.Windows{Tokens: train, Batch: all, Seq: seq, Seed: uint64(f.seed)}
	e := dataset.Windows{Tokens: held, Batch: batch, Seq: seq}
	t := task{spec: "zoo:" + name + "?" + query, source: text.Source, unit: "tokens", unitsPerBatch: all * seq, steps: 1500,
		meta: map[string]string{"vocab": vocab.Marshal()}, digest: digest(train)}
	feed := func(ids, next []int32) ampc.Feed { return ampc.Feed{"ids": ids, "next": next} }
	t.batch = func(i int64) (ampc.Feed, error) { return feed(w.Random(i)), nil }
	t.heldOut = func(ctx context.Context, eval *ampc.Step) (float64, float64, error) {
		return mean(ctx, eval, z.Steps[0].Losses[0].Value, ampc.Tensor{}, 8*f.parts(), func(i int) (ampc.Feed, int, error) {
			return feed(e.Even(i, 8*f.parts())), batch * seq, nil
		})
	}
	if name != "lstm" {
		t.sample = func(ctx context.Context, trained *ampc.Model) (string, error) {
			return sampleText(ctx, trained, name+"?"+query, vocab, held, f.seed)
		}
	}
	return t.of(z), nil
}

// vocabFor takes the vocabulary from the checkpoint of a continued run, or makes one.
func vocabFor(text string, from *origin) (dataset.Vocab, error) {
	if from == nil {
		return dataset.NewVocab(text, maxVocab), nil
	}
	v, err := dataset.UnmarshalVocab(from.vocab)
	if err != nil {
		return v, fmt.Errorf("%s: %w", from.path, err)
	}
	return v, nil
}

// splitText returns the tokens to train and to evaluate on: the last part of the text, or another
// file.
func splitText(text dataset.Text, vocab dataset.Vocab, heldOut string, seq int) (train, held []int32, err error) {
	all := vocab.Encode(text.Content)
	if heldOut == "" {
		if train, held, err = dataset.Split(all, heldShare, seq); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", text.Source, err)
		}
		return train, held, nil
	}
	test, err := dataset.ReadText(0, heldOut)
	if err != nil {
		return nil, nil, err
	}
	held = vocab.Encode(test.Content)
	for source, tokens := range map[string][]int32{text.Source: all, test.Source: held} {
		if len(tokens) <= seq {
			return nil, nil, fmt.Errorf("%s: %d tokens are too few for windows of %d", source, len(tokens), seq)
		}
	}
	return all, held, nil
}

// digest identifies data.
func digest(parts ...any) string {
	sum := sha256.New()
	for _, p := range parts {
		binary.Write(sum, binary.LittleEndian, p) // writing numbers into a hash cannot fail
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// mean evaluates n batches and weights them by the number of labels that count. The tensor that
// counts correct answers may be nil.
func mean(ctx context.Context, eval *ampc.Step, loss, correct ampc.Tensor, n int, batch func(i int) (ampc.Feed, int, error)) (meanLoss, accuracy float64, err error) {
	total := 0.0
	for i := range n {
		feed, count, err := batch(i)
		if err != nil {
			return 0, 0, err
		}
		r, err := eval.Run(ctx, feed)
		if err != nil {
			return 0, 0, err
		}
		l, err := r.Value(loss)
		if err != nil {
			return 0, 0, err
		}
		meanLoss += l.At(0) * float64(count)
		if !correct.Absent() {
			n, err := r.Value(correct)
			if err != nil {
				return 0, 0, err
			}
			accuracy += n.At(0)
		}
		total += float64(count)
	}
	return meanLoss / total, accuracy / total, nil
}

// sampleText lets the trained weights continue a held-out prompt, one character at a time, sampled
// at temperature 0.8.
func sampleText(ctx context.Context, trained *ampc.Model, spec string, vocab dataset.Vocab, held []int32, seed int64) (string, error) {
	z, err := models.Open(models.With(spec, "batch", 1))
	if err != nil {
		return "", err
	}
	step, err := z.Model.Infer(ampc.InferConfig{}, z.Output)
	if err != nil {
		return "", err
	}
	defer z.Model.Close()
	for _, name := range z.Model.Variables() {
		value, err := trained.Variable(name)
		if err != nil {
			return "", err
		}
		if err := z.Model.SetVariable(name, value); err != nil {
			return "", err
		}
	}
	const prompt, length, temperature = 32, 240, 0.8
	seq := z.Options.Int("seq")
	text := append([]int32{}, held[:min(prompt, seq)]...)
	r := rand.New(rand.NewPCG(uint64(seed), 0x5a))
	for range length {
		window := text[max(len(text)-seq, 0):]
		ids := make([]int32, seq)
		copy(ids, window)
		res, err := step.Run(ctx, ampc.Feed{"ids": ids})
		if err != nil {
			return "", err
		}
		logits, err := res.Value(z.Output)
		if err != nil {
			return "", err
		}
		size := logits.Len() / seq
		row := logits.Floats()[(len(window)-1)*size:][:vocab.Len()]
		text = append(text, pick(r, row, temperature))
	}
	return vocab.Decode(text), nil
}

// optimizer returns the model's own optimizer with a cosine schedule over the run. It warms up over
// a twentieth of the run and decays to a tenth of the rate.
func (t task) optimizer(f *trainFlags) (ampc.Optimizer, ampc.Schedule, ampc.Clip) {
	c := t.config
	rate := c.LR.Rate
	if f.rate != 0 {
		rate = f.rate
	}
	s := ampc.Cosine(rate, int64(f.steps/20), int64(f.steps)+1)
	s.Min = 0.1
	return c.Optimizer, s, c.Clip
}
