package ptxtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// Ptxas is NVIDIA's assembler: $AMPC_PTXAS, else the one in the PATH, else "".
func Ptxas() string {
	if path := os.Getenv("AMPC_PTXAS"); path != "" {
		return path
	}
	path, _ := exec.LookPath("ptxas")
	return path
}

var properties = regexp.MustCompile(`Function properties for (\S+)\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\s+ptxas info\s+: Used (\d+) registers(?:, used \d+ barriers)?(?:, (\d+) bytes smem)?`)

// Used are the registers of a thread and the bytes of shared memory of a block.
type Used struct{ Registers, Shared int }

// Assemble runs ptxas on a text for sm_<sm>, with dir for its files; the machine code is in the file
// cubin. It gives what each kernel uses, and a line for each that uses a stack or spills registers.
func Assemble(ptxas, dir, text string, sm int) (kernels map[string]Used, spills []string, cubin string, err error) {
	file := filepath.Join(dir, fmt.Sprintf("sm%d.ptx", sm))
	cubin = file + ".cubin"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return nil, nil, "", err
	}
	out, err := exec.Command(ptxas, "-v", fmt.Sprintf("-arch=sm_%d", sm), "-o", cubin, file).CombinedOutput()
	if err != nil {
		return nil, nil, "", fmt.Errorf("ptxas for sm_%d: %w\n%s", sm, err, out)
	}
	kernels = map[string]Used{}
	for _, m := range properties.FindAllStringSubmatch(string(out), -1) {
		if m[2] != "0" || m[3] != "0" || m[4] != "0" {
			spills = append(spills, fmt.Sprintf("sm_%d: %s uses %s bytes of stack, spills %s and reads %s", sm, m[1], m[2], m[3], m[4]))
		}
		registers, _ := strconv.Atoi(m[5])
		shared, _ := strconv.Atoi(m[6])
		kernels[m[1]] = Used{registers, shared}
	}
	return kernels, spills, cubin, nil
}

// Flavours are the flavours that are emitted, each with the GPUs it is assembled for.
func Flavours() map[int][]int { return map[int][]int{70: {70, 75}, 80: {80, 86}, 90: {90}} }
