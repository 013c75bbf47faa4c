package e2e_test

import (
	"flag"
	"fmt"
	"testing"

	"ampc"
	"ampc/ir"
)

var everyPolicy = flag.Bool("every-policy", false, "TestEveryStepReadsBack compiles every step under every policy")

// Whatever a pass leaves reads back from its text, in whatever order its nodes
// stand: a saved replay is that text. The wards have what the zoo has not, as
// inner gradients, whose nodes name others of the same section (of=, grad=).
func TestEveryStepReadsBack(t *testing.T) {
	policies := []ampc.Policy{ampc.MixedF16(), ampc.F32Only(), ampc.MixedBF16(), ampc.O1(ampc.F16), ampc.Torch(ampc.BF16)}
	if testing.Short() {
		policies = policies[:1]
	}
	for k, i := range faults() {
		t.Run(i.name, func(t *testing.T) {
			for j, p := range policies {
				if !*everyPolicy && j%2 != k%2 && !testing.Short() {
					continue
				}
				checked := i
				checked.config = func(c *ampc.TrainConfig) {
					if i.config != nil {
						i.config(c)
					}
					c.Compile.After = func(e ampc.PassEvent) { readBack(t, p.Name+" after "+e.Pass, e.Graph()) }
				}
				checked.open(t, p, -1)
			}
		})
	}
}

// readBack prints g and reads it, as it stands and shuffled.
func readBack(t *testing.T, what string, g *ir.Graph) {
	t.Helper()
	shuffled := g.Clone()
	if err := shuffled.Shuffle(1); err != nil {
		t.Fatal(err)
	}
	for _, g := range []*ir.Graph{g, shuffled} {
		if err := readsBack(g); err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
	}
}

// readsBack reports how g differs from what its text says.
func readsBack(g *ir.Graph) error {
	again, err := ir.Parse(g.Name, []byte(g.String()))
	if err != nil {
		return fmt.Errorf("its text is refused: %w", err)
	}
	return ir.Equal(again, g)
}
