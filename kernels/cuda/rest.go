package cuda

import (
	"time"

	"golang.org/x/sys/unix"
)

// Rest is a pause between two looks at whether a GPU has come to something, of 20 µs and what the kernel adds. By time.Sleep it
// would be a millisecond where nothing else runs: so long does Go's runtime wait at least for what is to happen next.
func Rest() {
	t := unix.NsecToTimespec(int64(20 * time.Microsecond))
	_ = unix.Nanosleep(&t, nil)
}
