package staging

import (
	"math/bits"

	"github.com/scaffe/scaffe/mem"
)

// least is the size of the smallest slot: a page.
const least = 4096

// class is the power of two that holds n bytes.
func class(n int) int { return bits.Len(uint(max(n, least) - 1)) }

// ring bounds the slots that are in use for one purpose.
type ring struct{ bound, used int }

// room reports whether a message of n bytes may have a slot: it always may where no other has.
func (r *ring) room(n int) bool { return r.used == 0 || r.used+1<<class(n) <= r.bound }

// take counts the slot of o.
func (r *ring) take(o *op) {
	o.of = r
	r.used += o.slot.Len()
}

// give ends that.
func (r *ring) give(o *op) {
	o.of = nil
	r.used -= o.slot.Len()
}

// pool keeps memory in powers of two for the next message of its size.
type pool struct {
	alloc func(n int) (mem.Buffer, error)
	free  func(mem.Buffer)
	bound int // bytes in use and kept; 0: any number
	all   int // bytes in use and kept
	idle  [64][]mem.Buffer
}

// get returns memory for n bytes.
func (p *pool) get(n int) (mem.Buffer, error) {
	k := class(n)
	if b, ok := p.pop(k); ok {
		return b, nil
	}
	if p.bound > 0 {
		p.shrink(p.bound - 1<<k)
	}
	b, err := p.alloc(1 << k)
	if err == nil {
		p.all += b.Len()
	}
	return b, err
}

func (p *pool) pop(k int) (b mem.Buffer, ok bool) {
	last := len(p.idle[k]) - 1
	if last < 0 {
		return b, false
	}
	b, p.idle[k] = p.idle[k][last], p.idle[k][:last]
	return b, true
}

// put takes memory back.
func (p *pool) put(b mem.Buffer) {
	k := class(b.Len())
	p.idle[k] = append(p.idle[k], b)
}

// shrink gives what is idle to the system, the largest first, until no more than so many bytes are left.
func (p *pool) shrink(to int) {
	for k := len(p.idle) - 1; k >= 0; k-- {
		for p.all > to {
			b, ok := p.pop(k)
			if !ok {
				break
			}
			p.free(b)
			p.all -= b.Len()
		}
	}
}

// close gives all that is idle to the system.
func (p *pool) close() { p.shrink(-1) }
