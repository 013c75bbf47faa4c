package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionInfo describes how the binary was built.
type versionInfo struct {
	Version  string `json:"version,omitempty"` // version of the module; empty for a build from its source tree
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"` // time of the commit
	Modified bool   `json:"modified"`       // the source tree had uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func versionOf(b *debug.BuildInfo) versionInfo {
	v := versionInfo{Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if b == nil {
		return v
	}
	if b.Main.Version != "(devel)" {
		v.Version = b.Main.Version
	}
	for _, s := range b.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (v versionInfo) String() string {
	s := "ampc"
	if v.Version != "" {
		s += " " + v.Version
	}
	switch {
	case v.Commit == "":
		s += ", commit not recorded (built with -buildvcs=false or outside a repository)"
	case v.Modified:
		s += fmt.Sprintf(", commit %s of %s with changes", v.Commit, v.Time)
	default:
		s += fmt.Sprintf(", commit %s of %s", v.Commit, v.Time)
	}
	return s + ", " + v.Go + ", " + v.Platform
}

func versionCommand() *cobra.Command {
	var asJSON bool
	c := command("version", "Print the commit and the Go version of this program", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		b, _ := debug.ReadBuildInfo()
		v := versionOf(b)
		if asJSON {
			return writeJSON(c.OutOrStdout(), v)
		}
		_, err := fmt.Fprintln(c.OutOrStdout(), v)
		return err
	})
	addJSON(c, &asJSON)
	return c
}
