package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"ampc/ir"
	"ampc/passes"
)

// The curve goes from the step as it is to less memory for more time, and never below its bound.
// The step fits at every point of it.
func TestPlanPrintsTheCurve(t *testing.T) {
	const model = "zoo:gpt?layers=3&batch=16"
	code, out, errs := ampcRun("", "plan", model, "--curve", "--json")
	var curve []passes.MemoryPoint
	if err := json.Unmarshal([]byte(out), &curve); code != 0 || err != nil || len(curve) < 4 {
		t.Fatalf("code %d, %v, %q %q", code, err, out, errs)
	}
	for i, p := range curve {
		if i > 0 && (p.Peak >= curve[i-1].Peak || p.Time <= curve[i-1].Time) || p.Bound > p.Time {
			t.Errorf("point %d: %+v behind %+v", i, p, curve[max(i-1, 0)])
		}
	}
	if last := curve[len(curve)-1]; 4*last.Peak > 3*curve[0].Peak || last.Bound <= 0 {
		t.Errorf("the curve ends at %+v, begins at %+v", last, curve[0])
	}
	for _, p := range curve {
		code, out, errs := ampcRun("", "plan", model, "--policy", "mixed-f16", "--json", "--memory", fmt.Sprint(p.Peak))
		var rows []planRow
		if err := json.Unmarshal([]byte(out), &rows); code != 0 || err != nil || rows[0].Peak > p.Peak {
			t.Errorf("within %d: code %d, %v, %s%s", p.Peak, code, err, out, errs)
		}
	}
	if code, out, errs := ampcRun("", "plan", model, "--curve"); code != 0 || !strings.Contains(out, "at least") || strings.Count(out, "\n") < 5 {
		t.Errorf("code %d, %q %q", code, out, errs)
	}
}

// A larger batch fits where backward computes again what it can.
func TestPlanFitsLargerBatches(t *testing.T) {
	code, out, errs := ampcRun("", "plan", "zoo:gpt?layers=3", "--policy", "mixed-f16", "--json", "--fit", "16MB")
	var rows []planRow
	if err := json.Unmarshal([]byte(out), &rows); code != 0 || err != nil {
		t.Fatalf("code %d, %v, %q", code, err, errs)
	}
	again := rows[0].FitAgain
	if again < rows[0].Fit*5/4 {
		t.Errorf("batch %d fits, %d where it is computed again", rows[0].Fit, again)
	}
	for batch, fits := range map[int64]bool{again: true, again + 1: false} {
		code, out, errs := ampcRun("", "plan", fmt.Sprintf("zoo:gpt?layers=3&batch=%d", batch), "--policy", "mixed-f16", "--memory", fmt.Sprint(rows[0].FitMemory), "--json")
		var held []planRow
		if code == 0 && json.Unmarshal([]byte(out), &held) != nil {
			t.Fatal(out)
		}
		if got := code == 0 && held[0].Held.Total <= 16<<20; got != fits {
			t.Errorf("batch %d with --memory %d: fits %t, want %t: code %d, %+v %s", batch, rows[0].FitMemory, got, fits, code, held, errs)
		}
	}
}

// The batch of a file is varied, too: the number or the dimension that is the first of all inputs. What
// is written for one batch says which value is.
func TestPlanFitsFiles(t *testing.T) {
	const model = `graph @m {%s
  input %%x : f32[%s,784]
  input %%y : i32[%[2]s]
  param %%w : f32[784,256] = normal(0, 0.05)
forward:
  %%h = matmul %%x, %%w
  %%s, %%c = cross_entropy %%h, %%y
  %%loss = div %%s, %%c
  return %%loss
}
`
	var batches []int64
	for _, c := range []struct {
		text string
		args []string
	}{{fmt.Sprintf(model, "", "64"), nil}, {fmt.Sprintf(model, "\n  dim N", "N"), []string{"--dim", "N=3"}}} {
		code, out, errs := ampcRun("", append([]string{"plan", putFile(t, t.TempDir(), "m.ir", c.text), "--policy", "mixed-f16", "--json", "--fit", "64MB"}, c.args...)...)
		var rows []planRow
		if err := json.Unmarshal([]byte(out), &rows); code != 0 || err != nil {
			t.Fatalf("code %d, %v, %q", code, err, errs)
		}
		batches = append(batches, rows[0].Fit)
		for batch, fits := range map[int64]bool{rows[0].Fit: true, rows[0].Fit + 1: false} {
			path := putFile(t, t.TempDir(), "m.ir", fmt.Sprintf(model, "", fmt.Sprint(batch)))
			_, out, _ := ampcRun("", "plan", path, "--policy", "mixed-f16", "--json")
			var held []planRow
			if err := json.Unmarshal([]byte(out), &held); err != nil || held[0].Held.Total <= 64<<20 != fits {
				t.Errorf("%v: batch %d holds %+v, fits %t", c.args, batch, held, fits)
			}
		}
	}
	if batches[0] != batches[1] || batches[0] < 100 {
		t.Errorf("batches %d fit", batches)
	}
	fixed := "graph @m {\n  input %x : f32[64,8]\nforward:\n  %h = slice %x {starts=[0] ends=[64]}\n  return %h\n}\n"
	if code, _, errs := ampcRun("", "plan", putFile(t, t.TempDir(), "m.ir", fixed), "--infer", "--fit", "64MB"); code != 1 || !strings.Contains(errs, "%h is computed from the inputs and has 64 rows") {
		t.Errorf("code %d, %q", code, errs)
	}
}

func TestMemoryFlagRefusesNonsense(t *testing.T) {
	for _, size := range []string{"3XB", "-4GB", "0"} {
		if code, _, errs := ampcRun("", "plan", "zoo:mlp", "--memory", size); code != 2 || !strings.Contains(errs, "--memory "+size+": want a size such as 24GB") {
			t.Errorf("--memory %s: code %d, %q", size, code, errs)
		}
	}
	if code, _, errs := ampcRun("", "plan", "zoo:mlp", "--curve", "--infer"); code != 2 || !strings.Contains(errs, "does not train") {
		t.Errorf("--curve --infer: code %d, %q", code, errs)
	}
	if code, _, errs := ampcRun("", "plan", "zoo:mlp", "--memory", "fit"); code != 0 {
		t.Errorf("--memory fit: %q", errs)
	}
}

// What a step holds is more than its arenas, by its results and the scratch memory of kernels.
func TestPlanHeld(t *testing.T) {
	var rows []planRow
	code, out, errs := ampcRun("", "plan", "zoo:lenet", "--json", "--policy", "f32")
	if err := json.Unmarshal([]byte(out), &rows); code != 0 || err != nil {
		t.Fatalf("code %d, %v, %q %q", code, err, out, errs)
	}
	_, p, _, err := planModel(&cobra.Command{}, "zoo:lenet", modelFlags{policy: "f32", micro: 1})
	if err != nil {
		t.Fatal(err)
	}
	total := p.Total()
	if len(rows) != 1 || rows[0].Held == nil {
		t.Fatal(out)
	}
	if h := rows[0].Held; h.Scratch <= 0 || h.Outputs <= 0 || h.Total < h.Variables+h.Work+h.Scratch || h.Variables+h.Work > total {
		t.Errorf("held: %+v, arenas of %d bytes", h, total)
	}
	_, table, _ := ampcRun("", "plan", "zoo:lenet", "--policy", "f32")
	if row := strings.Split(table, "\n")[1]; !strings.HasSuffix(strings.TrimRight(row, " "), ir.Bytes(rows[0].Held.Scratch)+"  "+ir.Bytes(rows[0].Held.Total)) {
		t.Errorf("the table does not end in %+v:\n%s", rows[0].Held, table)
	}
}
