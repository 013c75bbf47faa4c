package ampc

import (
	"runtime/debug"
	"strings"
	"testing"
)

// Only a release and a commit without changes say what a program was built from.
func TestCommitted(t *testing.T) {
	vcs := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs.revision", Value: "dd701245"}, {Key: "vcs.modified", Value: modified}}
	}
	for name, c := range map[string]struct {
		info debug.BuildInfo
		want bool
	}{
		"release":        {debug.BuildInfo{Main: debug.Module{Version: "v1.2.3", Sum: "h1:x"}}, true},
		"commit":         {debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: vcs("false")}, true},
		"changed":        {debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: vcs("true")}, false},
		"no repository":  {debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, false},
		"local module":   {debug.BuildInfo{Settings: vcs("false"), Deps: []*debug.Module{{Replace: &debug.Module{Path: "../x"}}}}, false},
		"another module": {debug.BuildInfo{Settings: vcs("false"), Deps: []*debug.Module{{Replace: &debug.Module{Path: "y", Version: "v1.0.0"}}}}, true},
	} {
		if got := committed(&c.info); got != c.want {
			t.Errorf("%s: committed is %t", name, got)
		}
	}
}

// The build of a program without a version, such as this test, is that of its executable. Ranks of one
// kind of machine compare builds; those of different ones cannot.
func TestBuildsAreCompared(t *testing.T) {
	build, machine := buildDigest()
	if build == 0 || machine == 0 {
		t.Errorf("build %x on machine %x: want the sums of the executable and of the platform", build, machine)
	}
	for want, ranks := range map[string][2][4]uint64{
		"":                            {{1, 2, 3, 4}, {1, 2, 5, 6}},
		"rank 1 runs another build":   {{1, 2, 3, 4}, {1, 2, 5, 4}},
		"rank 1 has compiled another": {{1, 2, 3, 4}, {7, 2, 3, 4}},
		"rank 1 has other variables":  {{1, 2, 3, 4}, {1, 7, 3, 4}},
	} {
		err := otherThanRank0(2, func(rank, i int) uint64 { return ranks[rank][i] })
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
