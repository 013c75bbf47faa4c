package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"ampc/internal/golden"
)

// Cases of testdata/models dump a model with one layer of each kind after amp,
// after the last pass and as a Program, and count what its casts came to.
func TestModelDumps(t *testing.T) {
	golden.Run(t, "../../testdata/models", func(t *testing.T, c *golden.Case) golden.Result {
		r := golden.Result{Sections: map[string]string{}}
		for section, flags := range map[string][]string{"want-amp": {"--after", "amp"}, "want-order": nil, "want-program": {"--stage", "program"}} {
			code, out, errs := ampcRun("", append(append([]string{}, c.Run...), flags...)...)
			if code != 0 {
				t.Fatalf("%s: %s", section, errs)
			}
			r.Sections[section] = out
		}
		var f modelFlags
		flags := &cobra.Command{}
		f.add(flags)
		if err := flags.ParseFlags(c.Run[2:]); err != nil {
			t.Fatal(err)
		}
		report, _, _, err := planModel(flags, c.Run[1], f)
		if err != nil {
			t.Fatal(err)
		}
		r.Counters = report.Counts
		r.Counters["casts_left"], r.Counters["stored_low"], r.Counters["stored_f32"] = report.Left, report.Low, report.F32
		return r
	})
}

// Under every policy, every model of the zoo in small: what its casts came to.
// The table is one file, so that a change shows where it tells.
func TestModelCounters(t *testing.T) {
	var b strings.Builder
	fmt.Fprintln(&b, "# model policy: casts inserted, reused, hoisted, removed, folded, left; values stored low, f32; notes")
	for _, model := range []string{
		"mlp", "lenet?size=8", "resnet?width=8&size=8&blocks1=1&blocks2=1&blocks3=0&blocks4=0", "gpt?layers=1", "lstm?seq=4",
		"bert?layers=1", "unet?levels=1&size=8", "unet3d?levels=1&depth=4&size=8", "convlstm?seq=2&ahead=2&size=8", "vit?layers=1", "gan",
	} {
		for _, policy := range plannedPolicies {
			c := &cobra.Command{}
			r, _, _, err := planModel(c, "zoo:"+model, modelFlags{policy: policy, micro: 1})
			if err != nil {
				t.Errorf("%s under %s: %v", model, policy, err)
				continue
			}
			n := r.Counts
			fmt.Fprintf(&b, "%s %s: %d %d %d %d %d %d; %d %d; %d\n", model, policy, n["casts_inserted"], n["casts_reused"]+n["casts_merged"], n["casts_hoisted"],
				n["casts_removed"]+n["casts_chained"]+n["casts_dead"], n["casts_folded_load"]+n["casts_folded_store"], r.Left, r.Low, r.F32, len(r.Notes))
		}
	}
	golden.File(t, "../../testdata/models/counters.txt", b.String())
}

// What a training step of every model of the zoo holds: the work arena, what
// lives at most at one step of the chosen order, and what forward keeps for
// backward, also against f32. An order or a plan that needs more shows here.
func TestModelMemory(t *testing.T) {
	var b strings.Builder
	fmt.Fprintln(&b, "# model policy: work arena, live at most, saved for backward (bytes), saved against f32")
	for _, model := range []string{
		"mlp", "lenet", "resnet", "resnet8", "gpt", "lstm", "bert", "unet", "unet3d", "convlstm", "vit", "gan", "resnet50?batch=2", "gpt2?batch=1",
		"mlp?batch=128&hidden=512&layers=2", "lenet?batch=32&conv1=20&conv2=50&pad=0&fc1=500&fc2=0", "resnet?batch=32",
		"gpt?layers=4&dim=256&heads=8&seq=128&batch=8&vocab=256",
	} {
		var f32 int64
		for _, policy := range []string{"f32", "mixed-f16", "mixed-bf16"} {
			r, _, _, err := planModel(&cobra.Command{}, "zoo:"+model, modelFlags{policy: policy, micro: 1})
			if err != nil {
				t.Errorf("%s under %s: %v", model, policy, err)
				continue
			}
			if policy == "f32" {
				f32 = r.Saved
			}
			fmt.Fprintf(&b, "%s %s: %d %d %d %.2f\n", model, policy, r.Work, r.Live, r.Saved, float64(r.Saved)/float64(f32))
		}
	}
	golden.File(t, "../../testdata/models/memory.txt", b.String())
}

// The bytes that a step of every model of the zoo moves under every policy: the
// first half of the table in docs/policies.md.
func TestModelBytes(t *testing.T) {
	code, out, errs := ampcRun("", "compare", "--steps", "0")
	if code != 0 {
		t.Fatal(errs)
	}
	golden.File(t, "../../testdata/models/bytes.txt", out)
	page, err := os.ReadFile("../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	if table := strings.TrimSpace(out); !strings.Contains(string(page), table) {
		t.Errorf("docs/policies.md has other bytes than testdata/models/bytes.txt: run ampc compare and put its output there")
	}
}

// A model without a task of its own fails to learn one: the loss falls for each.
func TestEveryModelHasATask(t *testing.T) {
	if testing.Short() {
		t.Skip("trains every model of the zoo for 100 steps")
	}
	v := variant{title: "f32", policy: "f32", seed: 1}
	for _, spec := range compared {
		first, err := compareOne(t.Context(), spec, v, 1)
		if err != nil {
			t.Fatal(err)
		}
		last, err := compareOne(t.Context(), spec, v, 100)
		if err != nil {
			t.Fatal(err)
		}
		if !(last.Loss < 0.99*first.Loss) {
			t.Errorf("%s: the loss goes from %g to %g", spec, first.Loss, last.Loss)
		}
	}
}
