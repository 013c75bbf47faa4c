package passes

import (
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"ampc/internal/golden"
	"ampc/ir"
)

// runCompile compiles a graph with the options of goldenOptions.
func runCompile(t *testing.T, c *golden.Case) golden.Result {
	cfg := trainingGolden{Config: Config{Train: true}, scalers: map[string]*Scaler{"": nil}}
	var mode ir.PrintMode
	for i := 1; i < len(c.Run); i++ {
		name, value, _ := strings.Cut(c.Run[i], "=")
		if name == "--reasons" {
			mode |= ir.Reasons
			continue
		}
		set := goldenOptions[name]
		if set == nil {
			t.Fatalf("run: no option %s", name)
		}
		if err := set(&cfg, value); err != nil {
			t.Fatalf("%s: %v", c.Run[i], err)
		}
	}
	res := golden.Result{Counters: map[string]int{}, Sections: map[string]string{}}
	var notes strings.Builder
	cfg.After = func(e Event) {
		maps.Copy(res.Counters, e.Counters)
		for _, n := range e.Notes {
			fmt.Fprintln(&notes, n)
		}
	}
	g, err := ir.Parse(filepath.Base(c.Path), []byte(c.Section("in")))
	if err == nil {
		for _, l := range cfg.Losses {
			if l.Scaler != nil {
				*l.Scaler = cfg.Scaler
			}
		}
		err = Run(g, resolved(g, cfg.Config))
	}
	if err != nil {
		if !c.Has("want.error") {
			t.Fatal(err)
		}
		res.Sections["want.error"] = err.Error() + "\n"
		return res
	}
	var b strings.Builder
	if err := g.Print(&b, mode); err != nil {
		t.Fatal(err)
	}
	res.Sections["want"], res.Sections["want.notes"] = b.String(), notes.String()
	return res
}

// trainingGolden is a config under construction.
type trainingGolden struct {
	Config
	scalers map[string]*Scaler // by the name that --loss gives them
}

// goldenOptions are the options of a run line, as --name=value.
var goldenOptions = map[string]func(c *trainingGolden, value string) error{
	"--passes":        func(c *trainingGolden, v string) error { c.Only = strings.Split(v, ","); return nil },
	"--until":         func(c *trainingGolden, v string) error { c.Until = v; return nil },
	"--weight-copies": func(c *trainingGolden, _ string) error { c.WeightCopies = true; return nil },
	"--pad":           func(c *trainingGolden, _ string) error { c.Pad = true; return nil },
	"--layout":        func(c *trainingGolden, v string) error { c.Caps.Layout = v; return nil },
	"--infer":         func(c *trainingGolden, _ string) error { c.Train = false; return nil },
	"--policy":        func(c *trainingGolden, v string) (err error) { c.Policy, err = PolicyNamed(v); return },
	"--optimizer": func(c *trainingGolden, v string) error { // kind[:rate[:pattern]]
		o := map[string]Optimizer{"sgd": SGD(0), "momentum": SGD(0.9), "adam": Adam(), "adamw": AdamW(0.1)}
		f := strings.Split(v, ":")
		g := Group{Optimizer: o[f[0]], LR: Constant(0.1)}
		if len(f) > 1 {
			rate, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				return err
			}
			g.LR = Constant(rate)
		}
		if len(f) > 2 {
			g.Pattern = f[2]
		}
		c.Groups = append(c.Groups, g)
		return nil
	},
	"--freeze": func(c *trainingGolden, v string) error {
		c.Groups = append(c.Groups, Group{Pattern: v, Freeze: true})
		return nil
	},
	"--cosine": func(c *trainingGolden, _ string) error {
		c.Groups[len(c.Groups)-1].LR = Cosine(0.1, 10, 100)
		return nil
	},
	"--scaler": func(c *trainingGolden, v string) error {
		s, ok := ScalerNamed(v)
		if x, err := strconv.ParseFloat(v, 64); err == nil {
			s, ok = Static(x), true
		}
		if !ok {
			return fmt.Errorf("no scaler %s", v)
		}
		c.Scaler = s
		return nil
	},
	"--sharing": func(c *trainingGolden, v string) error {
		c.Scaler = Dynamic()
		c.Scaler.Sharing = map[string]Sharing{"collect": Collect, "advance": Advance}[v]
		return nil
	},
	"--loss": func(c *trainingGolden, v string) error { // value[*weight][@scaler]
		v, scaler, _ := strings.Cut(v, "@")
		v, weight, _ := strings.Cut(v, "*")
		if scaler != "" && c.scalers[scaler] == nil {
			c.scalers[scaler] = new(Scaler)
		}
		l := Loss{Value: named(v), Scaler: c.scalers[scaler]}
		if weight != "" {
			w, err := strconv.ParseFloat(weight, 64)
			if err != nil {
				return err
			}
			l.Weight = w
		}
		c.Losses = append(c.Losses, l)
		return nil
	},
	"--micro":      func(c *trainingGolden, v string) (err error) { c.Micro, err = strconv.Atoi(v); return },
	"--drop":       func(c *trainingGolden, _ string) error { c.BadMicro = DropMicro; return nil },
	"--noskip":     func(c *trainingGolden, _ string) error { c.NoSkip = true; return nil },
	"--ema":        func(c *trainingGolden, v string) (err error) { c.EMA, err = strconv.ParseFloat(v, 64); return },
	"--clip-norm":  func(c *trainingGolden, v string) (err error) { c.Clip.Norm, err = strconv.ParseFloat(v, 64); return },
	"--clip-value": func(c *trainingGolden, v string) (err error) { c.Clip.Value, err = strconv.ParseFloat(v, 64); return },
	"--output":     func(c *trainingGolden, v string) error { c.Outputs = append(c.Outputs, outputNamed(v)); return nil },
	"--mean": func(c *trainingGolden, v string) error {
		c.Outputs = append(c.Outputs, Output{Value: named(v), Reduce: Mean})
		return nil
	},
}

// outputNamed is the result that --output asks for: a kind, d. and a parameter, or a value.
func outputNamed(name string) Output {
	for kind, called := range map[ResultKind]string{OfSkip: "skip", OfScale: "scale", OfGradNorm: "grad_norm", OfRate: "lr"} {
		if called == name {
			return Output{Kind: kind}
		}
	}
	if param, ok := strings.CutPrefix(name, "d."); ok {
		return Output{Kind: OfGradient, Value: named(param)}
	}
	return Output{Value: named(name)}
}
