package ptxtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// Ptxas is NVIDIA's assembler: $AMPC_PTXAS, else the one in the PATH, else "".
func Ptxas() string {
	if path := os.Getenv("AMPC_PTXAS"); path != "" {
		return path
	}
	path, _ := exec.LookPath("ptxas")
	return path
}

var properties = regexp.MustCompile(`Function properties for (\S+)\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads`)

// Assemble runs ptxas on a text for sm_<sm>, with dir for its files. It gives how many kernels there are,
// and a line for each that uses a stack or spills registers.
func Assemble(ptxas, dir, text string, sm int) (kernels int, spills []string, err error) {
	file := filepath.Join(dir, fmt.Sprintf("sm%d.ptx", sm))
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return 0, nil, err
	}
	out, err := exec.Command(ptxas, "-v", fmt.Sprintf("-arch=sm_%d", sm), "-o", file+".cubin", file).CombinedOutput()
	if err != nil {
		return 0, nil, fmt.Errorf("ptxas for sm_%d: %w\n%s", sm, err, out)
	}
	found := properties.FindAllStringSubmatch(string(out), -1)
	for _, m := range found {
		if m[2] != "0" || m[3] != "0" || m[4] != "0" {
			spills = append(spills, fmt.Sprintf("sm_%d: %s uses %s bytes of stack, spills %s and reads %s", sm, m[1], m[2], m[3], m[4]))
		}
	}
	return len(found), spills, nil
}

// Flavours are the flavours that are emitted, each with the GPUs it is assembled for.
func Flavours() map[int][]int { return map[int][]int{70: {70, 75}, 80: {80, 86}, 90: {90}} }
