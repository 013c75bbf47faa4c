package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"ampc/internal/file"
	"ampc/runtime/doctor"
	"ampc/view"
)

const viewHelp = `Show a compilation in a browser: the graph with the dtype of every value and its reason,
the sections side by side, scopes and clusters as frames that fold.

With --out FILE.html the page is one file that needs no network and opens from disk.
Otherwise it is served on the loopback address until Ctrl-C; the address that is printed
holds a token, without which the server answers nothing. A FILE.ampc is a step that
Step.SaveReplay or ampc train --save-bad wrote.`

// viewFlags are the flags of view beside those of the model.
type viewFlags struct {
	modelFlags
	out, listen string
}

func viewCommand() *cobra.Command {
	var f viewFlags
	c := command("view MODEL|FILE.ampc", "Show the compiled graph and its reasons in a browser", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		if err := writable(f.out); err != nil {
			return err
		}
		p, err := f.page(c, args[0])
		if err != nil {
			return err
		}
		if f.out != "" {
			return writePage(f.out, p)
		}
		return servePage(c, f.listen, p)
	})
	c.Long = viewHelp
	f.add(c)
	fl := c.Flags()
	fl.StringVarP(&f.out, "out", "o", "", "write one HTML `FILE` instead of serving the page")
	fl.StringVar(&f.listen, "listen", "127.0.0.1:0", "`ADDRESS` to serve on; port 0 is a free one")
	return c
}

// page is what there is to see of a model or of a saved step.
func (f *viewFlags) page(c *cobra.Command, spec string) (*view.Page, error) {
	if strings.HasSuffix(spec, ".ampc") {
		saved, err := doctor.Load(spec)
		if err != nil {
			return nil, err
		}
		return &view.Page{Title: spec, Blocks: []view.Block{view.GraphBlock("graph", "as it ran", saved.Graph)}}, nil
	}
	o, err := prepare(c, spec, &f.modelFlags)
	if err != nil {
		return nil, err
	}
	g, err := o.explained()
	if err != nil {
		return nil, err
	}
	title := spec
	if !o.compiled {
		title += ", " + f.policy
	}
	return &view.Page{Title: title, Blocks: []view.Block{view.GraphBlock("graph", "compiled", g)}}, nil
}

func writePage(path string, p *view.Page) error {
	return file.Write(path, func(f *os.File) error {
		_, err := p.WriteTo(f)
		return err
	})
}

// servePage shows a page until the command is interrupted.
func servePage(c *cobra.Command, address string, p *view.Page) error {
	s, err := view.Listen(address, p)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(c.OutOrStdout(), s.Address()); err != nil {
		return err
	}
	return s.Run(c.Context())
}
