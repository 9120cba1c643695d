//go:build linux && (amd64 || arm64)

package shm

import (
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// Place returns the registered memory in which rank to, of this node, waits for the n bytes of the message
// with the tag given.
func (t *Transport) Place(to int, tag nbc.Tag, n int) (mem.Buffer, bool) {
	if n <= blockRoom || t.byRank[to] == nil {
		return mem.Buffer{}, false
	}
	e := t.table.find(t.byRank[to], tag)
	if e == nil || e.wanted.head == nil {
		return mem.Buffer{}, false
	}
	w := &e.wanted.head.descriptor
	if w.place != registered || int(w.length) != n {
		return mem.Buffer{}, false
	}
	return e.peer.at(w)
}
