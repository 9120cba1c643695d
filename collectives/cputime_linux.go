package collectives

import "golang.org/x/sys/unix"

// cpuTime returns the CPU time in seconds, the kernel's included, that the calling
// thread or all of the process has had.
func cpuTime(thread bool) float64 {
	who := unix.RUSAGE_SELF
	if thread {
		who = unix.RUSAGE_THREAD
	}
	var u unix.Rusage
	if unix.Getrusage(who, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
