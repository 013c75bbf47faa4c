package models_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"ampc"
	"ampc/internal/trial"
	"ampc/models"
)

// BenchmarkDoctor has skipped steps diagnosed: where gradients overflow from the
// loss on (scale); where a weight in the middle is so large that a product
// overflows, for which bf16 is tried too (forward); and where f16 that the
// update is written in overflows, so that replays run to their end (update).
// "first" is how many times the step's own processor time the first diagnosis of a step takes, right
// after the step was skipped for the third time: the median of nine steps, each compiled anew. "again"
// is the median of what later ones take. "ahead" is what was prepared in the background after the first
// skip, in steps as well. Steps and diagnoses are measured alike, each by itself: after a pause, threads
// of a small model take longer to begin.
//
// In two more cases Run itself diagnoses the step, because its scaler is dynamic: where gradients
// overflow after steps that were taken (search), and in the first step of all (start). "first" and
// "ms/first" are what Run takes there beyond a Run with RestoreNever, "ahead" is what was prepared before that.
func BenchmarkDoctor(b *testing.B) {
	for _, spec := range []string{"gpt", "gpt?layers=4&dim=256&heads=8&seq=128&batch=8&vocab=256", "lenet?batch=128", "resnet8?batch=32", "mlp", "mlp?batch=256", "mlp?hidden=1024"} {
		for _, fault := range []string{"scale", "forward", "update"} {
			b.Run(spec+"/"+fault, func(b *testing.B) { benchDoctor(b, spec, fault) })
		}
		for _, fault := range []string{"search", "start"} {
			b.Run(spec+"/"+fault, func(b *testing.B) { benchRun(b, spec, fault == "start") })
		}
	}
}

func benchDoctor(b *testing.B, spec, fault string) {
	var first, cold, ahead []time.Duration
	for range 9 {
		d := newDiagnosed(b, spec, fault)
		ahead = append(ahead, d.ahead)
		runtime.GC() // memory kept from earlier diagnoses goes
		runtime.GC()
		time.Sleep(20 * time.Millisecond) // what the collector does in the background ends
		d.run()
		cpu, wall := d.look()
		first, cold = append(first, cpu), append(cold, wall)
		d.model.Close()
	}
	d := newDiagnosed(b, spec, fault)
	defer d.model.Close()
	d.look()
	var steps, looks, took []time.Duration
	for b.Loop() {
		for range 4 {
			cpu := spent(b)
			d.run()
			steps = append(steps, spent(b)-cpu)
		}
		cpu, wall := d.look()
		looks, took = append(looks, cpu), append(took, wall)
	}
	each := median(steps)
	b.ReportMetric(median(first)/each, "first")
	b.ReportMetric(median(looks)/each, "again")
	b.ReportMetric(median(ahead)/each-1, "ahead")
	b.ReportMetric(each/1e6, "ms/step")
	b.ReportMetric(median(cold)/1e6, "ms/first")
	b.ReportMetric(median(took)/1e6, "ms/again")
}

// tooLarge is a loss scale at which the gradients of every model overflow f16.
const tooLarge = 1 << 30

// benchRun has Run diagnose the first step that is skipped, and compares it with one that is not diagnosed.
func benchRun(b *testing.B, spec string, atOnce bool) {
	for b.Loop() { // what is timed has cases of its own
	}
	var cpu, wall [2][]time.Duration // without and with a diagnosis
	var ahead, steps []time.Duration
	for i := range 18 {
		d := newRunning(b, spec, atOnce, i%2 == 1)
		if !atOnce {
			before := spent(b)
			d.once(false)
			time.Sleep(100 * time.Millisecond)
			if i%2 == 1 {
				ahead = append(ahead, spent(b)-before)
			}
			d.once(false)
			runtime.GC()
			runtime.GC()
			time.Sleep(20 * time.Millisecond)
			if err := d.model.SetVariable("amp.scale", []float32{tooLarge}); err != nil {
				b.Fatal(err)
			}
		}
		before, start := spent(b), time.Now()
		d.once(true)
		took := time.Since(start)
		cpu[i%2], wall[i%2] = append(cpu[i%2], spent(b)-before), append(wall[i%2], took)
		for range 4 {
			before := spent(b)
			d.once(true) // what the search skips yet is not diagnosed
			steps = append(steps, spent(b)-before)
		}
		d.model.Close()
	}
	each := median(steps)
	b.ReportMetric((median(cpu[1])-median(cpu[0]))/each, "first")
	if !atOnce {
		b.ReportMetric(median(ahead)/each-1, "ahead")
	}
	b.ReportMetric(each/1e6, "ms/step")
	b.ReportMetric((median(wall[1])-median(wall[0]))/1e6, "ms/first")
}

// newRunning compiles a step whose loss scale is dynamic, and too large from the start if atOnce.
func newRunning(b testing.TB, spec string, atOnce, restores bool) *diagnosed {
	z, err := models.Open(spec)
	if err != nil {
		b.Fatal(err)
	}
	c := z.Steps[0].Config
	c.Policy, c.Scaler = ampc.MixedF16(), ampc.Dynamic()
	if atOnce {
		c.Scaler.Init, c.Scaler.Cap = tooLarge, tooLarge
	}
	if !restores {
		c.RestoreScale = ampc.RestoreNever
	}
	feed := z.Batch(1)
	step, err := z.Model.Train(c, z.Steps[0].Losses...)
	if err != nil {
		b.Fatal(err)
	}
	return &diagnosed{b: b, model: z.Model, step: step, feed: feed}
}

// diagnosed is a step that is skipped.
type diagnosed struct {
	b     testing.TB
	model *ampc.Model
	step  *ampc.Step
	feed  ampc.Feed
	ahead time.Duration // processor time of the first step and of what it began
}

// newDiagnosed compiles a step with a fault and runs it twice.
func newDiagnosed(b *testing.B, spec, fault string) *diagnosed {
	d := newFaulty(b, spec, fault)
	cpu := spent(b)
	d.run()
	time.Sleep(100 * time.Millisecond)
	d.ahead = spent(b) - cpu
	d.run()
	return d
}

// newFaulty compiles a step with a fault, or without if that is "".
func newFaulty(b testing.TB, spec, fault string) *diagnosed {
	z, err := models.Open(spec)
	if err != nil {
		b.Fatal(err)
	}
	c, loss := z.Steps[0].Config, z.Steps[0].Losses[0]
	c.Policy, c.RestoreScale = ampc.MixedF16(), ampc.RestoreNever // else skipped steps are diagnosed as well
	switch fault {
	case "scale":
		c.Scaler, loss.Weight = ampc.Static(1<<24), 1<<24
	case "update":
		c.Gradients = func(u *ampc.Update, gs []ampc.Grad) []ampc.Grad {
			gs[0].Value = u.Cast(u.Cast(u.Affine(gs[0].Value, 1e12, 0), ampc.F16), ampc.F32)
			return gs
		}
	}
	step, err := z.Model.Train(c, loss)
	if err != nil {
		b.Fatal(err)
	}
	if fault == "forward" {
		enlarge(b, z.Model)
	}
	return &diagnosed{b: b, model: z.Model, step: step, feed: z.Batch(1)}
}

func (d *diagnosed) run() { d.once(true) }

// once runs the step, which must be skipped or must not.
func (d *diagnosed) once(skipped bool) {
	r, err := d.step.Run(context.Background(), d.feed)
	if err != nil {
		d.b.Fatal(err)
	}
	if is := trial.Metrics(d.b, r).Skipped; is != skipped {
		d.b.Fatalf("skipped %t, want %t", is, skipped)
	}
}

// look diagnoses the step, and returns the processor time and the time that this took.
func (d *diagnosed) look() (time.Duration, time.Duration) {
	cpu, start := spent(d.b), time.Now()
	found, err := d.step.Diagnose(context.Background())
	took := time.Since(start)
	if err != nil || found.Cause == ampc.NoFault {
		d.b.Fatalf("%v: %v", err, found)
	}
	return spent(d.b) - cpu, took
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2])
}

// enlarge multiplies the weight in the middle such that its product overflows f16.
func enlarge(b testing.TB, m *ampc.Model) {
	b.Helper()
	var weights []string
	for _, name := range m.Variables() {
		if strings.HasSuffix(name, ".w") && !strings.HasPrefix(name, "amp.") {
			weights = append(weights, name)
		}
	}
	name := weights[len(weights)/2]
	v, err := m.Variable(name)
	if err != nil {
		b.Fatal(err)
	}
	x := make([]float32, v.Len())
	for i := range x {
		x[i] = float32(v.At(i)) * (1 << 24)
	}
	if err := m.SetVariable(name, x); err != nil {
		b.Fatal(err)
	}
}
