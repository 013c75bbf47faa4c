package cpu

import "syscall"

// physical is the machine's memory in bytes, 0 where the system does not say.
func physical() int64 {
	var s syscall.Sysinfo_t
	if syscall.Sysinfo(&s) != nil {
		return 0
	}
	return int64(s.Totalram) * int64(s.Unit)
}
