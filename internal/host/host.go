// Package host is the machine on which this process runs, as far as ranks share it: its
// kernel, and its cores.
package host

import (
	"hash/fnv"
	"math/bits"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Cores returns the number of cores of this machine; unlike runtime.NumCPU, of
// all, not only of those that mpirun bound this rank to, and unlike what the
// processor says of itself, of all sockets.
func Cores() int {
	text, err := os.ReadFile("/proc/cpuinfo")
	n := strings.Count("\n"+string(text), "\nprocessor\t")
	if err != nil || n == 0 {
		return runtime.NumCPU()
	}
	return n
}

// Kernel returns a number that tells the kernel which runs here from those of other
// machines and of other times, but not from that of another container; 0 where there is
// none.
func Kernel() int64 {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write(id)
	return int64(h.Sum64() >> 1)
}

// Core returns the core on which the calling thread runs, -1 where that is not known.
func Core() int {
	var core uint32
	if _, _, err := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&core)), 0, 0); err != 0 {
		return -1
	}
	return int(core)
}

// CoreSet is a set of cores of one machine, a bit for each.
type CoreSet [16]uint64

// Allowed returns the cores on which the calling thread may run; none where that
// is not known.
func Allowed() (c CoreSet) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) == nil {
		for i := range 64 * len(c) {
			if set.IsSet(i) {
				c[i/64] |= 1 << (i % 64)
			}
		}
	}
	return c
}

// Or returns the cores of both sets.
func (c CoreSet) Or(o CoreSet) CoreSet {
	for i, x := range o {
		c[i] |= x
	}
	return c
}

// Overlaps reports whether a core is in both sets.
func (c CoreSet) Overlaps(o CoreSet) bool {
	for i, x := range o {
		if c[i]&x != 0 {
			return true
		}
	}
	return false
}

// Count returns how many cores are in the set.
func (c CoreSet) Count() (n int) {
	for _, x := range c {
		n += bits.OnesCount64(x)
	}
	return n
}
