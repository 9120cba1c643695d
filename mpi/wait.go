package mpi

import (
	"runtime"
	"time"
)

// pause lets other processes of this machine run between two tests of a
// request: they may be the ones that it waits for.
func pause(i int) {
	switch {
	case i < 100:
		runtime.Gosched()
	case i < 1000:
		time.Sleep(20 * time.Microsecond)
	default:
		time.Sleep(time.Millisecond)
	}
}
