package main

import (
	"path/filepath"
	"strings"
	"testing"
)

const smallMLP = "zoo:mlp?batch=2&in=8&hidden=8&classes=3"

// TestDevices trains, runs and times on a simulated GPU. A backend that is
// closed while anything of its memory is left says so, and the command fails.
func TestDevices(t *testing.T) {
	for _, args := range [][]string{
		{"bench", smallMLP, "--device", "sim:sm_90", "--steps", "1"},
		{"bench", smallMLP, "--device", "sim:sm_70/nodnn", "--steps", "1", "--policy", "mixed-f16"},
		{"run", smallMLP, "--device", "sim:sm_80", "--steps", "2", "--policy", "mixed-bf16"},
		{"train", "zoo:gpt?layers=1&heads=2&dim=8&batch=2&seq=8", "--device", "sim:sm_90", "--steps", "3", "--text", rhyme(t), "--out", filepath.Join(t.TempDir(), "out"), "--quiet"},
	} {
		code, stdout, stderr := ampcRun("", args...)
		if code != 0 || stdout == "" {
			t.Errorf("%v: code %d\n%s", args, code, stderr)
		}
	}
}

// TestDevicesFitAScreen wants the CPU and every library named, in a screen, and
// a way out where no GPU can be used.
func TestDevicesFitAScreen(t *testing.T) {
	code, out, stderr := ampcRun("", "devices")
	if code != 0 || strings.Count(out, "\n") > 24 {
		t.Errorf("code %d, %s\n%s", code, stderr, out)
	}
	for _, want := range []string{"cpu: ", "cpu kernels: ", "cuda ", "nvrtc ", "cublasLt ", "cudnn ", "nccl "} {
		if !strings.Contains(out, "\n"+want) && !strings.HasPrefix(out, want) {
			t.Errorf("no line begins with %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "no device: ") != strings.Contains(out, "to do: ") && !strings.Contains(out, "\ndevice 0") {
		t.Errorf("a problem without advice:\n%s", out)
	}
}

// TestDeviceFaults wants one line that says what is wrong with a --device.
func TestDeviceFaults(t *testing.T) {
	for device, want := range map[string]string{
		"sim:sm_42":  "no such GPU",
		"sim:sm_90/": "sim:",
		"gpu":        "want cuda:0",
		"cuda:x":     "want cuda:0",
		"cuda:99":    "cuda: ",
	} {
		code, _, stderr := ampcRun("", "bench", smallMLP, "--device", device, "--steps", "1")
		if code == 0 || !strings.Contains(stderr, want) || strings.Count(strings.TrimSpace(stderr), "\n") != 0 {
			t.Errorf("--device %s: code %d, %q", device, code, stderr)
		}
	}
}

// TestPlanDevice lists the products of a model as a GPU runs them, in place of the CPU: with products
// that share a launch.
func TestPlanDevice(t *testing.T) {
	code, out, stderr := ampcRun("", "plan", "zoo:gpt?layers=1&heads=2&dim=8&batch=2&seq=8", "--device", "sim:sm_90", "--policy", "mixed-f16")
	if code != 0 || !strings.Contains(out, "f16*f16->f32") {
		t.Errorf("code %d\n%s\n%s", code, out, stderr)
	}
}
