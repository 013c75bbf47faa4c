package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"ampc"
	"ampc/ir"
	"ampc/lower"
	"ampc/models"
)

// training is one run of bench train.
type training struct {
	precision, device, into       string
	threads, check, rounds, steps int
	infer                         bool
}

func (t *training) flags(f *flag.FlagSet) {
	f.StringVar(&t.precision, "precision", "bf16", "f32, tf32, f16 or bf16")
	f.StringVar(&t.device, "device", "cuda:0", "cuda:0, cpu, or sim:sm_90 to try the program itself")
	f.IntVar(&t.threads, "threads", 1, "threads of --device cpu; 0: one per processor")
	f.StringVar(&t.into, "into", "", "file that the result line is added to")
	f.IntVar(&t.check, "check", 20, "steps whose losses are kept, before anything is timed")
	f.IntVar(&t.rounds, "rounds", 5, "rounds timed; their median counts")
	f.IntVar(&t.steps, "steps", 10, "steps in a round; the host waits at its end")
	f.BoolVar(&t.infer, "infer", false, "compute the loss and train nothing, with the weights as inference has them; the host waits for every step")
}

// policies are what precisions are called here.
var policies = map[string]string{"f32": "f32", "tf32": "tf32", "f16": "mixed-f16", "bf16": "mixed-bf16"}

// result is a line of results: one model trained one way. PyTorch's lines have
// the same fields.
type result struct {
	Model     string  `json:"model"`
	Spec      string  `json:"spec"`
	Precision string  `json:"precision"`
	Infer     bool    `json:"infer"` // nothing was trained
	By        string  `json:"by"`    // ampc, torch eager, torch compile
	Device    string  `json:"device"`
	Threads   int     `json:"threads"` // of a CPU, 0 of a GPU
	StepMS    float64 `json:"step_ms"` // median over rounds
	BestMS    float64 `json:"best_ms"` // the fastest round
	Unit      string  `json:"unit"`
	PerSecond float64 `json:"per_second"`
	Held      int64   `json:"held_bytes"`   // the most that tensors took
	InUse     int64   `json:"in_use_bytes"` // of the device's memory at the end, context and libraries included
	Syncs     float64 `json:"host_syncs"`   // per step
	Losses    losses  `json:"losses"`       // of the first steps
	Skipped   int     `json:"skipped"`      // of them
	Ready     float64 `json:"ready_s"`      // until the first loss was read
	Notes     string  `json:"notes,omitempty"`
}

// losses is written to JSON with null for what is not finite.
type losses []float64

func (l losses) MarshalJSON() ([]byte, error) {
	list := make([]*float64, len(l))
	for i, x := range l {
		if x-x == 0 {
			list[i] = &x
		}
	}
	return json.Marshal(list)
}

func (l *losses) UnmarshalJSON(text []byte) error {
	var list []*float64
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	*l = nil
	for _, x := range list {
		if x == nil {
			nan := math.NaN()
			x = &nan
		}
		*l = append(*l, *x)
	}
	return nil
}

func (t *training) run(path string, out io.Writer) (err error) {
	policy, err := ampc.PolicyNamed(policies[t.precision])
	if err != nil {
		return fmt.Errorf("--precision %s: want f32, tf32, f16 or bf16", t.precision)
	}
	if t.check < 2 || t.rounds < 1 || t.steps < 1 {
		return fmt.Errorf("--check %d --rounds %d --steps %d: want 2, 1 and 1 at least", t.check, t.rounds, t.steps)
	}
	s, err := readStart(path)
	if err != nil {
		return err
	}
	z, err := models.Open(s.Spec)
	if err != nil {
		return err
	}
	b, err := openDevice(t.device, t.threads)
	if err != nil {
		return fmt.Errorf("--device %s: %w", t.device, err)
	}
	defer func() { err = errors.Join(err, z.Model.Close(), b.Close()) }()
	begun := time.Now()
	if err := z.Model.Set(ampc.On(b.Backend)); err != nil {
		return err
	}
	step, err := t.compile(z, policy)
	if err != nil {
		return err
	}
	for name, data := range s.variables {
		v := z.Model.Graph().Var(name)
		if v == nil {
			return fmt.Errorf("%s: zoo:%s has no variable %q", path, s.Spec, name)
		}
		if err := z.Model.SetVariable(name, ampc.HostTensor{Type: ampc.TypeFromIR(v.Type), Bytes: data}); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	r := result{Model: s.Model, Spec: s.Spec, Precision: t.precision, Infer: t.infer, By: system(t.device), Device: b.name, Threads: b.threads, Unit: s.Unit, Held: held(step.Program())}
	for _, n := range step.Notes() {
		if strings.HasPrefix(n, "refused") {
			r.Notes = strings.TrimPrefix(r.Notes+"; "+n, "; ")
		}
	}
	m := measured{step: step, feeds: feedsOf(s, step.Program())}
	if t.infer {
		m.loss = z.Steps[0].Losses[0].Value
	}
	if err := t.measure(&r, b, m, begun); err != nil {
		return fmt.Errorf("zoo:%s in %s: %w", s.Spec, t.precision, err)
	}
	r.PerSecond = float64(s.PerStep) / r.StepMS * 1e3
	return t.report(out, r)
}

// compile makes the step of the run.
func (t *training) compile(z *models.Zoo, policy ampc.Policy) (*ampc.Step, error) {
	losses := z.Steps[0].Losses
	if t.infer {
		return z.Model.Infer(ampc.InferConfig{Policy: policy}, losses[0].Value)
	}
	c := z.Steps[0].Config
	c.Policy, c.Compile.WeightCopies = policy, policy.Mixed()
	return z.Model.Train(c, losses...)
}

// held is what the Program's arenas take. Variables that other Programs have
// too are counted; the workspaces of libraries are not.
func held(p *lower.Program) (n int64) {
	for _, a := range p.Arenas {
		n += a
	}
	return n
}

// measured is a step that is timed, and the batches that it takes in turn.
type measured struct {
	step  *ampc.Step
	feeds []ampc.Feed
	loss  ampc.Tensor // of inference: the value to read
	taken int
}

func (m *measured) take() (*ampc.Result, error) {
	m.taken++
	return m.step.Run(context.Background(), m.feeds[(m.taken-1)%len(m.feeds)])
}

// read waits for a step and gives its loss, and whether its update was skipped.
func (m *measured) read(r *ampc.Result) (loss float64, skipped bool, err error) {
	n, err := r.Wait(context.Background())
	if err != nil || m.loss == (ampc.Tensor{}) {
		return n.Loss, n.Skipped, err
	}
	x, err := r.Value(m.loss)
	if err != nil {
		return 0, false, err
	}
	r.Release()
	return x.At(0), false, nil
}

// round takes steps and gives the last, which has not been waited for. Inference waits for the others.
func (m *measured) round(steps int) (last *ampc.Result, err error) {
	for i := range steps {
		if last, err = m.take(); err != nil {
			return nil, err
		}
		if i < steps-1 && m.loss != (ampc.Tensor{}) {
			if _, _, err := m.read(last); err != nil {
				return nil, err
			}
		}
	}
	return last, nil
}

// measure takes the first steps one by one, then rounds of steps.
// system is ampc with the suffixes of a device's name, which say what it does without: ampc/noaux.
func system(device string) string {
	if _, less, ok := strings.Cut(device, "/"); ok {
		return "ampc/" + less
	}
	return "ampc"
}

func (t *training) measure(r *result, b device, m measured, begun time.Time) error {
	for i := range t.check {
		got, err := m.take()
		if err != nil {
			return err
		}
		loss, skipped, err := m.read(got)
		if err != nil {
			return err
		}
		r.Losses = append(r.Losses, loss)
		if skipped {
			r.Skipped++
		}
		if i == 0 {
			r.Ready = time.Since(begun).Seconds()
		}
	}
	var rounds []float64
	for range t.rounds {
		before, from := b.syncs(), time.Now()
		last, err := m.round(t.steps)
		if err != nil {
			return err
		}
		r.Syncs += float64(b.syncs()-before) / float64(t.steps*t.rounds)
		if _, _, err := m.read(last); err != nil {
			return err
		}
		rounds = append(rounds, time.Since(from).Seconds()*1e3/float64(t.steps))
	}
	slices.Sort(rounds)
	r.StepMS, r.BestMS = rounds[len(rounds)/2], rounds[0]
	var err error
	r.InUse, err = b.inUse()
	return err
}

// feedsOf are the batches as the step takes them, nothing left to convert.
func feedsOf(s *start, p *lower.Program) []ampc.Feed {
	var feeds []ampc.Feed
	for _, batch := range s.batches {
		f := ampc.Feed{}
		for _, v := range p.Vars {
			if data := batch[v.Name]; v.Kind == ir.Input && data != nil {
				f[v.Name] = ampc.HostTensor{Type: ampc.TypeFromIR(v.Type), Bytes: data}
			}
		}
		feeds = append(feeds, f)
	}
	return feeds
}

// report prints the result for people and adds it to the file for bench table.
func (t *training) report(out io.Writer, r result) error {
	fmt.Fprintf(out, "%s %s by %s on %s: %.2f ms a step, %.0f %s/s, %.1f GiB in use, %g host waits a step, loss %.4f to %.4f, %d of %d steps skipped, ready after %.1f s\n",
		r.work(), r.Precision, r.By, r.Device, r.StepMS, r.PerSecond, r.Unit, float64(r.InUse)/(1<<30), r.Syncs, r.Losses[0], r.Losses[len(r.Losses)-1], r.Skipped, len(r.Losses), r.Ready)
	if t.into == "" {
		return nil
	}
	f, err := os.OpenFile(t.into, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(f).Encode(r), f.Close())
}

// littleEndian lays numbers out.
func littleEndian[T float32 | int32](x []T) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(4 * len(x))
	err := binary.Write(&b, binary.LittleEndian, x)
	return b.Bytes(), err
}
