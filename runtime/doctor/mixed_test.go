package doctor_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ampc"
	"ampc/ir"
	"ampc/models"
	"ampc/runtime/cpu"
	"ampc/runtime/doctor"
)

// A step with nothing kept in f32 rounds like f16, one with everything kept is f32 to the bit,
// and any part can be kept. The compiled graph stays as it was. Rounding may move a value across
// zero before a relu, which changes gradients of so small a model by a hundredth, so the middle one
// of several batches counts.
func TestMixedVariants(t *testing.T) {
	b, err := cpu.Open(2)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	specs := []string{"mlp", "gpt?layers=1&dim=32&seq=16&batch=2", "lenet?batch=2", "lstm?seq=4&dim=16&batch=2", "resnet8?batch=2&size=16",
		"bert?layers=1&dim=32&seq=16&batch=2", "unet?batch=1&size=16&width=8", "vit?layers=1&dim=32&batch=2", "gan",
		"unet3d?batch=1&depth=4&size=8&width=4&levels=1", "convlstm?batch=2&seq=2&ahead=1&size=8&width=8&layers=1"}
	if testing.Short() {
		specs = specs[:2]
	}
	for _, spec := range specs {
		t.Run(spec, func(t *testing.T) {
			off := map[string][]float64{} // by part
			for batch := range int64(9) {
				c := caseOf(t, spec, 1+batch)
				was := printed(t, c.Graph)
				for part, names := range parts(c.Graph) {
					d, err := doctor.CompareMixed(b, c, names)
					if err != nil {
						t.Fatalf("%s: %v", part, err)
					}
					off[part] = append(off[part], d)
				}
				if is := printed(t, c.Graph); is != was {
					t.Errorf("the replays changed the compiled graph from\n%s\nto\n%s", was, is)
				}
			}
			for part, list := range off {
				slices.Sort(list)
				least, median, most := list[0], list[len(list)/2], list[len(list)-1]
				if part == "all" && most != 0 || part != "all" && (least == 0 || median > 0x1p-6) {
					t.Errorf("%s: off by %g", part, list)
				}
			}
		})
	}
}

// caseOf is a step of a zoo model under mixed-f16 on a batch.
func caseOf(t *testing.T, spec string, batch int64) *doctor.Case {
	t.Helper()
	z, err := models.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Model.Close()
	c := z.Steps[0].Config
	c.Policy, c.Scaler = ampc.MixedF16(), ampc.Static(1024)
	step, err := z.Model.Train(c, z.Steps[0].Losses...)
	if err != nil {
		t.Fatal(err)
	}
	return caseAfter(t, step, z.Batch(batch))
}

// caseAfter is a step that is run once.
func caseAfter(t *testing.T, step *ampc.Step, feed ampc.Feed) *doctor.Case {
	t.Helper()
	if _, err := step.Run(context.Background(), feed); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "step.ampc")
	if err := step.SaveReplay(path); err != nil {
		t.Fatal(err)
	}
	k, err := doctor.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// parts are lists of forward values to keep.
func parts(g *ir.Graph) map[string][]string {
	lists := map[string][]string{"none": nil}
	for i, n := range g.Body[ir.Forward] {
		for _, v := range n.Out {
			lists["all"] = append(lists["all"], v.Name)
			if i%3 == 0 {
				lists["some"] = append(lists["some"], v.Name)
			}
		}
	}
	return lists
}

// printed is a graph with reasons and positions.
func printed(t *testing.T, g *ir.Graph) string {
	t.Helper()
	var b strings.Builder
	if err := g.Print(&b, ir.Reasons|ir.Positions); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
