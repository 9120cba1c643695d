package shm

import (
	"errors"
	"time"

	"github.com/scaffe/scaffe/nbc"
)

// Options of a transport; the zero value is good.
type Options struct {
	// Room is the address space of a rank's registered memory in bytes, hence
	// how much of it there can be; 0 means twice the machine's memory.
	Room int
	// SetupWait bounds how long New waits for the node's other ranks; 0 means
	// a minute.
	SetupWait time.Duration
	// Warn, unless nil, is told on the first rank of a node why messages
	// there are slower than they might be.
	Warn func(string)

	// For tests: as if the system forbade process_vm_readv, to map another
	// rank's memory, to have some to share.
	forbidVM, forbidMap, forbidArena bool
	// For tests: large messages have one copier; or two, however many cores there are.
	forbidShare, forceShare bool
}

// ErrClosed is what calls after Close return.
var ErrClosed = errors.New("shm: the transport is closed")

// Over returns what opens a transport by open and lays New over it, for
// nbc.Start.
func Over(open func() (nbc.Transport, error), opts Options) func() (nbc.Transport, error) {
	return func() (nbc.Transport, error) {
		inner, err := open()
		if err != nil {
			return nil, err
		}
		t, err := New(inner, opts)
		if err != nil {
			return nil, errors.Join(err, inner.Close())
		}
		return t, nil
	}
}
