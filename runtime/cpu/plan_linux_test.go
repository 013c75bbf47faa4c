package cpu_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/runtime"
	"ampc/runtime/cpu"
	"ampc/runtime/cpu/kern"
)

// The most memory that a process has resident while it trains is what the plan says, within 5% and
// 32 MiB, for steps of 512 MiB and more. Go's runtime, the compiler's garbage and pages of files are
// resident before.
func TestResidentMemory(t *testing.T) {
	if spec := os.Getenv("AMPC_TEST_RESIDENT"); spec != "" {
		residentChild(t, spec)
		return
	}
	if testing.Short() || kern.RaceEnabled {
		t.Skip("steps of 512 MiB in processes of their own: left out with -short and under the race detector, whose heap has them")
	}
	for _, spec := range []string{
		"zoo:mlp?batch=256&hidden=4096&layers=4",
		"zoo:gpt?layers=4&dim=256&heads=8&seq=128&batch=40&vocab=4096",
		"zoo:resnet8?batch=640",
	} {
		t.Run(spec, func(t *testing.T) {
			c := exec.Command(os.Args[0], "-test.run=^TestResidentMemory$", "-test.v")
			c.Env = append(os.Environ(), "AMPC_TEST_RESIDENT="+strings.TrimPrefix(spec, "zoo:"), "GOGC=10") // garbage is Go's
			out, err := c.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var planned, resident int64
			_, line, _ := strings.Cut(string(out), "resident: ")
			if _, err := fmt.Sscan(line, &planned, &resident); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if planned < 512<<20 {
				t.Errorf("the step plans %s, too little for this test", ir.Bytes(planned))
			}
			if slack := planned/20 + 32<<20; resident > planned+slack || resident < planned-slack {
				t.Errorf("%s are resident, %s are planned", ir.Bytes(resident), ir.Bytes(planned))
			}
			t.Logf("%s are resident, %s are planned", ir.Bytes(resident), ir.Bytes(planned))
		})
	}
}

// residentChild runs two steps and prints what is planned, and what more than before was resident.
func residentChild(t *testing.T, spec string) {
	p := compiled(t, spec, "f32")
	plan, err := cpu.PlanMemory(p, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", plan)
	f := feed(p, rand.New(rand.NewPCG(1, 2)))
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Skip("the system does not restart the count of resident memory: ", err)
	}
	before := mostResident(t)
	b, err := cpu.Open(2)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	e := loaded(t, b, p)
	for range 2 {
		if _, err := e.Step(context.Background(), []runtime.Feed{f}); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("scratch of kernels %d, mapped %d", cpu.ScratchOf(b), kern.MappedBytes())
	fmt.Printf("resident: %d %d\n", plan.Total(), mostResident(t)-before)
}

// mostResident is the most memory that this process has had resident since the count began.
func mostResident(t *testing.T) int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(status), "VmHWM:")
	words := strings.Fields(line)
	n, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}
