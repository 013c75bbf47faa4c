package models_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// diagnosedEnv gives a process of BenchmarkFirstDiagnosis its step: MODEL|FAULT|whether it is diagnosed.
const diagnosedEnv = "AMPC_DIAGNOSED_STEP"

// BenchmarkFirstDiagnosis measures the first diagnosis of the first step of a process, with all that it
// waits for: what is prepared in the background after the step was skipped, new memory, code that
// was not run before. Each process runs one step. Half of them run it with a fault and diagnose it at
// once, half run it without. "first" is what the diagnosis takes beyond the step in times that first
// step, "later" in times a later one, both in processor time; "wall" is "first" by the clock. Faults are
// those of BenchmarkDoctor.
func BenchmarkFirstDiagnosis(b *testing.B) {
	for _, spec := range []string{"mlp", "mlp?batch=256", "mlp?hidden=1024", "gan", "lenet", "lstm", "resnet8", "gpt", "bert", "vit", "unet", "unet3d", "convlstm", "resnet"} {
		for _, fault := range []string{"scale", "forward", "update", "start"} {
			b.Run(spec+"/"+fault, func(b *testing.B) { benchFirst(b, spec, fault) })
		}
	}
}

// firstRun is what a process measured.
type firstRun struct{ cpu, wall, later time.Duration }

func benchFirst(b *testing.B, spec, fault string) {
	for b.Loop() { // each process is measured by itself
	}
	var cpu, wall, later [2][]time.Duration // without and with a diagnosis
	for i := range 14 {
		c := exec.Command(os.Args[0], "-test.run", "^TestFirstDiagnosis$", "-test.v")
		c.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%s|%t", diagnosedEnv, spec, fault, i%2 == 1))
		out, err := c.CombinedOutput()
		if err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		var r firstRun
		_, line, _ := strings.Cut(string(out), "measured: ")
		if _, err := fmt.Sscan(line, &r.cpu, &r.wall, &r.later); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		cpu[i%2], wall[i%2], later[i%2] = append(cpu[i%2], r.cpu), append(wall[i%2], r.wall), append(later[i%2], r.later)
	}
	took := median(cpu[1]) - median(cpu[0])
	b.ReportMetric(took/median(cpu[0]), "first")
	b.ReportMetric(took/median(later[0]), "later")
	b.ReportMetric((median(wall[1])-median(wall[0]))/median(wall[0]), "wall")
	b.ReportMetric(took/1e6, "ms/diagnosis")
	b.ReportMetric(median(cpu[0])/1e6, "ms/step")
}

// TestFirstDiagnosis is a process of BenchmarkFirstDiagnosis.
func TestFirstDiagnosis(t *testing.T) {
	of := strings.Split(os.Getenv(diagnosedEnv), "|")
	if len(of) != 3 {
		t.Skip("BenchmarkFirstDiagnosis runs it: " + diagnosedEnv + " is not set")
	}
	spec, fault, diagnose := of[0], of[1], of[2] == "true"
	atOnce := fault == "start"
	var d *diagnosed
	switch {
	case atOnce:
		d = newRunning(t, spec, true, diagnose)
	case diagnose:
		d = newFaulty(t, spec, fault)
	default:
		d = newFaulty(t, spec, "")
	}
	defer d.model.Close()
	time.Sleep(100 * time.Millisecond) // what Train began ends
	cpu, start := spent(t), time.Now()
	d.once(diagnose || atOnce)
	if diagnose && !atOnce {
		d.look()
	}
	wall := time.Since(start)
	r := firstRun{cpu: spent(t) - cpu, wall: wall}
	var steps []time.Duration
	for range 5 {
		before := spent(t)
		if _, err := d.step.Run(t.Context(), d.feed); err != nil { // a scale that is searched for may fit by now
			t.Fatal(err)
		}
		steps = append(steps, spent(t)-before)
	}
	r.later = time.Duration(median(steps))
	fmt.Println("measured:", r.cpu.Nanoseconds(), r.wall.Nanoseconds(), r.later.Nanoseconds())
}
