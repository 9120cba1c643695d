package nbc

import (
	"fmt"
	"strconv"
	"sync"
)

// Persistent is the bit of Binding.Instance of requests that are started many
// times. They are counted apart from the others: one that is kept for long meets
// no other when the count of those that run once begins again.
const Persistent uint32 = 1 << 31

// instanceName returns such as 812, or p7 for the seventh persistent one.
func instanceName(instance uint32) string {
	if instance&Persistent != 0 {
		return "p" + strconv.FormatUint(uint64(instance&^Persistent), 10)
	}
	return strconv.FormatUint(uint64(instance), 10)
}

// RequestName returns what errors call a request: such as reduce#812, or
// reduce#p7 for the seventh persistent one of its communicator.
func RequestName(name string, instance uint32) string {
	if instance == 0 {
		return name
	}
	return name + "#" + instanceName(instance)
}

// identity is what no two open requests share.
type identity struct {
	comm     uint64
	instance uint32
}

func (r *Request) identity() identity { return identity{r.bind.Comm, r.instance} }

// identities are those of the open requests of an engine. Their messages could
// not be told apart, so a second request of one identity is refused when it is
// made.
type identities struct {
	mu   sync.Mutex
	open map[identity]*Request
}

// take reports whether r's was free, and takes it.
func (s *identities) take(r *Request) bool {
	id := r.identity()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[id] != nil {
		return false
	}
	if s.open == nil {
		s.open = map[identity]*Request{}
	}
	s.open[id] = r
	return true
}

// find returns the open request of an identity, nil where there is none.
func (s *identities) find(id identity) *Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[id]
}

func (s *identities) give(id identity) {
	s.mu.Lock()
	delete(s.open, id)
	s.mu.Unlock()
}

// taken is why a request with the identity of another is refused.
func (r *Request) taken() error {
	return fmt.Errorf("nbc: %s: another open request is collective %s of communicator %d: close it first, or give this one another number",
		r.name(), instanceName(r.instance), r.bind.Comm)
}
