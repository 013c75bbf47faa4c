//go:build !windows

package gputest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ebitengine/purego"

	"ampc/cuda"
	"ampc/ptx"
	"ampc/ptx/ptxtest"
)

// driverNames are functions of the driver that a runtime as this one may want, those that package cuda
// calls left out: Discover looks for these itself.
const driverNames = `cuCtxGetCurrent cuCtxGetStreamPriorityRange cuDeviceGetDefaultMemPool cuDeviceGetPCIBusId cuDevicePrimaryCtxGetState
cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxSetFlags_v2 cuGetProcAddress_v2 cuGraphDebugDotPrint cuGraphInstantiateWithParams
cuGraphNodeGetType cuGraphUpload cuLaunchCooperativeKernel cuLaunchHostFunc cuLaunchKernelEx cuMemAllocAsync cuMemFreeAsync
cuMemHostGetDevicePointer_v2 cuMemHostRegister_v2 cuMemHostUnregister cuMemPoolGetAttribute cuMemPoolSetAttribute cuMemPoolTrimTo
cuMemcpyDtoD_v2 cuMemcpyDtoH_v2 cuMemcpyHtoD_v2 cuMemsetD16Async cuModuleGetGlobal_v2 cuModuleLoadData
cuOccupancyMaxActiveBlocksPerMultiprocessor cuOccupancyMaxPotentialBlockSize cuProfilerStart cuProfilerStop cuStreamCreateWithPriority
cuStreamIsCapturing cuStreamQuery cuThreadExchangeStreamCaptureMode`

// TestProbe prints what was found; it is the first thing to read in a log.
func TestProbe(t *testing.T) {
	g := open(t)
	r := cuda.Discover()
	fmt.Print(r)
	i := g.Info()
	free, total, err := g.MemInfo()
	g.must(t, err)
	fmt.Printf("%s: capability %d.%d, flavour %s, driver %d, %d SMs, L2 %d MiB, opt-in shared %d, memory %d of %d MiB free\n",
		i.Name, i.Major, i.Minor, g.fl, i.Driver, i.SMs, i.L2>>20, i.SharedOptin, free>>20, total>>20)
	for _, l := range r.Libraries {
		if l.Library != "cuda" || l.Path == "" {
			continue
		}
		handle, err := purego.Dlopen(l.Path, purego.RTLD_NOW)
		g.must(t, err)
		var missing []string
		names := strings.Fields(driverNames)
		for _, n := range names {
			if _, err := purego.Dlsym(handle, n); err != nil {
				missing = append(missing, n)
			}
		}
		fmt.Printf("of %d more functions of the driver %d are missing: %s\n", len(names), len(missing), strings.Join(missing, ", "))
	}
}

// TestFlavours loads every kernel in every flavour that the device should take: text for an older
// capability runs on a newer device.
func TestFlavours(t *testing.T) {
	g := open(t)
	for _, fl := range []ptx.Flavour{ptx.SM70, ptx.SM80, ptx.SM90} {
		if fl.SM > g.fl.SM {
			fmt.Printf("flavour %s: for newer devices than %s\n", fl, g.Info().Name)
			continue
		}
		loaded := 0
		for _, c := range ptxtest.Cases() {
			l, err := c.Build(fl)
			g.must(t, err)
			m := ptx.Module{Flavour: fl, Kernels: []*ptx.Kernel{l.Kernel}}
			mod, err := g.Load(m.Text())
			if err != nil {
				t.Errorf("flavour %s: %s: %v", fl, c.Name, err)
				continue
			}
			_, err = g.Function(mod, l.Kernel.Name)
			g.must(t, err)
			g.must(t, g.Unload(mod))
			loaded++
		}
		fmt.Printf("flavour %s: %d of %d kernels load on %s\n", fl, loaded, len(ptxtest.Cases()), g.Info().Name)
	}
}
