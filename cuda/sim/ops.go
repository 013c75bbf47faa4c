package sim

import (
	"bytes"
	"errors"
	"fmt"

	"ampc/cuda"
	"ampc/ptx"
	"ampc/ptx/interp"
)

// op is one operation on a stream: run does it and says which memory it used.
type op struct {
	what string
	run  func() ([]span, error)
	held *Footprint
	comm *comm // that NCCL runs it on
}

// issue executes an operation on a stream, or records it where the stream is captured.
func (d *Device) issue(s cuda.Stream, o op) error {
	l, err := d.lane(o.what, s)
	if err != nil {
		return err
	}
	o.held = d.held
	if l.graph != nil {
		l.graph.add(l, o)
		return nil
	}
	d.issued(l)
	return d.execute(l, o)
}

func (d *Device) execute(l *lane, o op) error {
	first := len(d.flights)
	d.done = work{}
	uses, err := o.run()
	if err == nil {
		err = d.keepsTo(o.held, o.what, uses)
	}
	if err != nil {
		return err
	}
	w := d.done
	if w == (work{}) {
		for _, u := range uses {
			w.bytes += u.bytes
		}
	}
	d.spend(l, o.what, w)
	err = d.mark(l, o.what, uses)
	d.board(first, l)
	return err
}

// CopyToDevice copies host memory of HostAlloc.
func (d *Device) CopyToDevice(dst cuda.Ptr, src []byte, s cuda.Stream) error {
	const call = "cuMemcpyHtoDAsync_v2"
	if !d.pinned(src) {
		return d.fail(call, cuda.CodeInvalidValue, "the source is not memory of HostAlloc")
	}
	return d.issue(s, op{what: call, run: func() ([]span, error) {
		d.Stats.Copies++
		d.done.link = int64(len(src))
		if !d.pinned(src) {
			return nil, d.fail(call, cuda.CodeIllegalAddress, "the source has been freed")
		}
		d.takeOff(src, bytes.Clone(src), false)
		return []span{{dst, int64(len(src)), true}}, d.memory(call, d.mem.Write(uint64(dst), src))
	}})
}

// CopyToHost copies to memory of HostAlloc.
func (d *Device) CopyToHost(dst []byte, src cuda.Ptr, s cuda.Stream) error {
	const call = "cuMemcpyDtoHAsync_v2"
	if !d.pinned(dst) {
		return d.fail(call, cuda.CodeInvalidValue, "the destination is not memory of HostAlloc")
	}
	return d.issue(s, op{what: call, run: func() ([]span, error) {
		d.Stats.Copies++
		d.Stats.ToHost++
		d.done.link = int64(len(dst))
		if !d.pinned(dst) {
			return nil, d.fail(call, cuda.CodeIllegalAddress, "the destination has been freed")
		}
		data := make([]byte, len(dst))
		err := d.mem.Read(data, uint64(src))
		d.takeOff(dst, data, true)
		return []span{{src, int64(len(dst)), false}}, d.memory(call, err)
	}})
}

// Copy copies within the device.
func (d *Device) Copy(dst, src cuda.Ptr, size int64, s cuda.Stream) error {
	const call = "cuMemcpyDtoDAsync_v2"
	return d.issue(s, op{what: call, run: func() ([]span, error) {
		d.Stats.Copies++
		uses := []span{{src, size, false}, {dst, size, true}}
		if _, _, ok := overlap(uses); ok {
			return nil, d.fail(call, cuda.CodeInvalidValue, "%d bytes from %#x overlap those from %#x", size, uint64(src), uint64(dst))
		}
		buf := make([]byte, size)
		err := d.mem.Read(buf, uint64(src))
		if err == nil {
			err = d.mem.Write(uint64(dst), buf)
		}
		return uses, d.memory(call, err)
	}})
}

// Fill32 writes count words.
func (d *Device) Fill32(dst cuda.Ptr, word uint32, count int64, s cuda.Stream) error {
	const call = "cuMemsetD32Async"
	if dst%4 != 0 {
		return d.fail(call, cuda.CodeInvalidValue, "%#x is not a multiple of 4", uint64(dst))
	}
	buf := make([]byte, 4*count)
	for i := range buf {
		buf[i] = byte(word >> (8 * (i % 4)))
	}
	return d.fill(call, dst, buf, s)
}

// Fill8 writes count bytes.
func (d *Device) Fill8(dst cuda.Ptr, b byte, count int64, s cuda.Stream) error {
	buf := make([]byte, count)
	for i := range buf {
		buf[i] = b
	}
	return d.fill("cuMemsetD8Async", dst, buf, s)
}

func (d *Device) fill(call string, dst cuda.Ptr, buf []byte, s cuda.Stream) error {
	return d.issue(s, op{what: call, run: func() ([]span, error) {
		d.Stats.Fills++
		return []span{{dst, int64(len(buf)), true}}, d.memory(call, d.mem.Write(uint64(dst), buf))
	}})
}

// memory turns a refusal of the memory into the driver's error.
func (d *Device) memory(call string, err error) error {
	if err == nil {
		return nil
	}
	return d.fail(call, cuda.CodeIllegalAddress, "%v", err)
}

// Load parses and verifies PTX text, for the device's capability.
func (d *Device) Load(text string) (cuda.Module, error) {
	const call = "cuModuleLoadDataEx"
	if err := d.outside(call); err != nil {
		return 0, err
	}
	if err := d.fault(call); err != nil {
		return 0, err
	}
	d.loads++
	if d.loads == d.opt.FailLoad {
		return 0, d.fail(call, cuda.CodeInvalidPTX, "ptxas application ptx input, line 1; error : injected fault")
	}
	m, err := ptx.Parse(text)
	if err == nil {
		err = ptx.Verify(m)
	}
	if err != nil {
		return 0, d.fail(call, cuda.CodeInvalidPTX, "%v", err)
	}
	if m.Flavour.SM > d.opt.Major*10+d.opt.Minor {
		return 0, d.fail(call, 209, "text for sm_%d on sm_%d%d", m.Flavour.SM, d.opt.Major, d.opt.Minor)
	}
	progs := map[string]*interp.Program{}
	for _, k := range m.Kernels {
		if progs[k.Name], err = interp.Compile(k); err != nil {
			return 0, d.fail(call, cuda.CodeInvalidPTX, "%v", err)
		}
	}
	h := cuda.Module(d.handle())
	d.mods[h] = progs
	return h, nil
}

// Unload drops a module; its functions become invalid.
func (d *Device) Unload(m cuda.Module) error {
	if err := d.outside("cuModuleUnload"); err != nil {
		return err
	}
	if d.mods[m] == nil {
		return d.fail("cuModuleUnload", cuda.CodeInvalidHandle, "no such module")
	}
	for f, p := range d.funcs {
		if d.mods[m][p.Kernel.Name] == p {
			delete(d.funcs, f)
		}
	}
	delete(d.mods, m)
	return nil
}

// Function finds a kernel.
func (d *Device) Function(m cuda.Module, name string) (cuda.Function, error) {
	const call = "cuModuleGetFunction"
	if err := d.ready(call); err != nil {
		return 0, err
	}
	p := d.mods[m][name]
	if p == nil {
		return 0, d.fail(call, cuda.CodeMissing, "kernel %s", name)
	}
	f := cuda.Function(d.handle())
	d.funcs[f] = p
	return f, nil
}

// Launch runs a kernel.
func (d *Device) Launch(f cuda.Function, grid [3]int, block, shared int, s cuda.Stream, args []cuda.Ptr) error {
	const call = "cuLaunchKernel"
	if err := d.ready(call); err != nil {
		return err
	}
	p := d.funcs[f]
	if p == nil {
		return d.fail(call, cuda.CodeInvalidHandle, "no such function")
	}
	if shared != 0 {
		return d.fail(call, cuda.CodeInvalidValue, "kernel %s: dynamic shared memory is not simulated", p.Kernel.Name)
	}
	if err := d.fault(call); err != nil {
		return err
	}
	cfg := interp.Config{Grid: grid, Block: block}
	for _, a := range args {
		cfg.Args = append(cfg.Args, uint64(a))
	}
	return d.issue(s, op{what: "kernel " + p.Kernel.Name, run: func() ([]span, error) { return d.launch(p, cfg) }})
}

func (d *Device) launch(p *interp.Program, cfg interp.Config) ([]span, error) {
	d.launches++
	d.Stats.Launches++
	if d.launches == d.opt.FailLaunch {
		return nil, d.fail("cuLaunchKernel", cuda.CodeLaunchFailed, "kernel %s: injected fault", p.Kernel.Name)
	}
	st, err := p.Run(d.mem, cfg, interp.Options{NoRaces: !d.opt.Races, Trace: !d.opt.NoHazards})
	var f *interp.Fault
	if errors.As(err, &f) {
		return nil, d.fail("cuLaunchKernel", faultCode(f.Kind), "%v", f)
	}
	d.done.bytes = st.LoadBytes + st.StoreBytes
	d.Stats.LoadBytes += st.LoadBytes
	d.Stats.StoreBytes += st.StoreBytes
	var uses []span
	for _, t := range d.mem.Touched() {
		uses = append(uses, span{cuda.Ptr(t.Addr), interp.PageSize, t.Write})
	}
	return uses, err
}

func faultCode(k interp.FaultKind) int {
	switch k {
	case interp.BadLaunch:
		return cuda.CodeInvalidValue
	case interp.OutOfBounds, interp.Uninitialized:
		return cuda.CodeIllegalAddress
	case interp.Misaligned:
		return cuda.CodeMisaligned
	}
	return cuda.CodeLaunchFailed
}

// String names the device in logs.
func (d *Device) String() string { return fmt.Sprintf("sim:sm_%d%d", d.opt.Major, d.opt.Minor) }
