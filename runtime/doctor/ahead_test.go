package doctor_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"ampc/runtime/cpu"
	"ampc/runtime/doctor"
)

// A diagnosis with prepared replays says the same. It compiles at most one more, which shows a value
// that others do not. Only replays that such a fault takes are loaded ahead.
func TestPrepared(t *testing.T) {
	b, err := cpu.Open(2)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, spec := range []string{"mlp", "lenet?batch=8"} {
		for name, change := range map[string]func(c *doctor.Case){
			"scale":   func(c *doctor.Case) { scaleBy(c, "amp.scale", 1<<16) },
			"forward": func(c *doctor.Case) { scaleBy(c, "fc1.w", 1<<24); c.NotFinite = true },
		} {
			t.Run(spec+"/"+name, func(t *testing.T) {
				c := caseOf(t, spec, 1)
				c.Backend = b
				change(c)
				want := said(t, c)
				k := new(doctor.Kept)
				ahead := *c
				ahead.Feeds, ahead.State = nil, nil
				k.Prepare(&ahead, false)
				k.Prepare(&ahead, true)
				k.Wait()
				likely, _ := k.Replays()
				other := ahead
				other.NotFinite = !c.NotFinite
				k.Prepare(&other, false)
				k.Wait()
				ahead.State = c.State
				if err := k.Load(&ahead); err != nil {
					t.Fatal(err)
				}
				compiled, loaded := k.Replays()
				if likely == 0 || compiled == likely || loaded != likely {
					t.Errorf("%d replays compiled, %d of them likely, %d loaded", compiled, likely, loaded)
				}
				c.Kept = k
				if got := said(t, c); got != want {
					t.Errorf("prepared:\n%s\nwithout:\n%s", got, want)
				}
				if after, _ := k.Replays(); after > compiled+1 || after > compiled && spec == "mlp" {
					t.Errorf("%d replays compiled ahead, %d after the diagnosis", compiled, after)
				}
			})
		}
	}
}

// said is the diagnosis of a case as JSON.
func said(t *testing.T, c *doctor.Case) string {
	t.Helper()
	d, err := doctor.Diagnose(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if d.Cause == doctor.None {
		t.Error("no fault found")
	}
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s\n%s", d, text)
}

// scaleBy multiplies the f32 variables whose name ends so.
func scaleBy(c *doctor.Case, suffix string, by float32) {
	for name, data := range c.State {
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		data = bytes.Clone(data)
		for i := 0; i < len(data); i += 4 {
			x := math.Float32frombits(binary.LittleEndian.Uint32(data[i:]))
			binary.LittleEndian.PutUint32(data[i:], math.Float32bits(by*x))
		}
		c.State[name] = data
	}
}
