package models_test

import (
	goruntime "runtime"
	"testing"
	"time"

	"ampc"
	"ampc/internal/cputime"
	"ampc/ir"
	"ampc/lower"
	"ampc/models"
	"ampc/passes"
)

// BenchmarkProof compiles training steps, passes and lowering, and reports the
// processor time of that and the share of the proof in it, %proof. The proof is
// the copy of the graph that the rules compare with, and the rules. %verify is
// the share of lower.Verify. All times are of the same compilations, so a busy
// machine slows all alike. Each includes its part of the garbage collection, by
// the bytes that it allocates: they decide how often the collector runs.
func BenchmarkProof(b *testing.B) {
	for _, spec := range []string{"gpt2", "resnet50", "gpt", "unet", "lstm", "unet3d", "convlstm"} {
		b.Run(spec, func(b *testing.B) {
			z, err := models.Open(spec)
			if err != nil {
				b.Fatal(err)
			}
			goruntime.LockOSThread() // whose time cputime tells
			defer goruntime.UnlockOSThread()
			var all, rest, proof, verify work
			process := spent(b)
			all.start()
			for b.Loop() {
				compileOnce(b, z, &rest, &proof, &verify)
			}
			all.stop()
			collector := spent(b) - process - all.time // what other threads did
			ms := func(w work) float64 {
				return 1e3 * (w.time.Seconds() + collector.Seconds()*w.bytes/all.bytes) / float64(b.N)
			}
			whole := ms(rest) + ms(proof) + ms(verify)
			b.ReportMetric(whole, "cpu-ms/compile")
			b.ReportMetric(proof.bytes/float64(b.N)/1e6, "MB/proof")
			b.ReportMetric(100*ms(proof)/whole, "%proof")
			b.ReportMetric(100*ms(verify)/whole, "%verify")
		})
	}
}

// work is processor time of the benchmark's thread and bytes allocated.
type work struct {
	time  time.Duration
	bytes float64
}

func (w *work) start() { w.bytes -= allocated(); w.time -= cputime.Thread() }
func (w *work) stop()  { w.time += cputime.Thread(); w.bytes += allocated() }

func allocated() float64 {
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return float64(m.TotalAlloc)
}

// compileOnce adds a compilation's work to proof and rest, and that of checking its Program to verify.
func compileOnce(b *testing.B, z *models.Zoo, rest, proof, verify *work) {
	c := z.Steps[0].Config
	c.Policy = ampc.MixedF16()
	g, p, err := z.Model.Source(c, z.Steps[0].Losses...)
	if err != nil {
		b.Fatal(err)
	}
	var proofs int
	begin := func() { rest.stop(); proof.start() }
	end := func() { proof.stop(); rest.start(); proofs++ }
	p.Source = func(*ir.Graph) { end() }
	p.After = func(e passes.Event) {
		switch e.Pass {
		case "optimizer", "order": // the copy and the rules are next
			begin()
		case "prove":
			end()
		}
	}
	rest.start()
	if err := passes.Run(g, p); err != nil {
		b.Fatal(err)
	}
	program, err := lower.Unverified(g, lower.CPU)
	if err != nil {
		b.Fatal(err)
	}
	rest.stop()
	verify.start()
	if err := lower.Verify(program); err != nil {
		b.Fatal(err)
	}
	verify.stop()
	if proofs != 2 {
		b.Fatalf("the proof had %d parts, want 2", proofs)
	}
}
