// Package futex is the kernel's wait on a word of memory, which processes may share.
package futex

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const opWait, opWake = 0, 1

// Wait sleeps while word has the value, d at most, and reports whether the time was up.
func Wait(word *uint32, value uint32, d time.Duration) (timedOut bool) {
	until := unix.NsecToTimespec(int64(d))
	_, _, e := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), opWait, uintptr(value),
		uintptr(unsafe.Pointer(&until)), 0, 0)
	return e == unix.ETIMEDOUT
}

// Wake wakes one thread that sleeps on word.
func Wake(word *uint32) {
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), opWake, 1, 0, 0, 0)
}
