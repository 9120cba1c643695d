package nbc

import (
	"encoding/json"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/scaffe/scaffe/mem"
)

// notice is what engines tell each other outside the messages: a question about
// a collective, or the answer to one. It travels as JSON.
type notice struct {
	Answer bool      `json:"a,omitempty"`
	ID     uint64    `json:"n"`           // of the inquiry; the answer repeats it
	Deep   bool      `json:"d,omitempty"` // the asked rank is to ask on
	About  Execution `json:"x"`
	// How the collective was called; empty and 0 where who asks is not in it.
	Print uint32 `json:"p,omitempty"`
	Call  string `json:"k,omitempty"`

	// Of an answer alone:
	Status PeerStatus `json:"s,omitempty"`
	Edges  []Edge     `json:"e,omitempty"`
	Last   string     `json:"l,omitempty"`
	Reason string     `json:"y,omitempty"`

	// Warning is for rank 0 to warn of, about a collective that has been under
	// way for Age.
	Warning string        `json:"w,omitempty"`
	Age     time.Duration `json:"g,omitempty"`

	// Note is a text for the engine's user; then there is nothing else.
	Note string `json:"t,omitempty"`
}

// edgesTold is how many edges an answer has at most.
const edgesTold = 3

// encode returns the bytes of n, cut to NoticeRoom.
func (n notice) encode() []byte {
	n.Call, n.Last, n.Reason, n.Note = cut(n.Call, 200), cut(n.Last, 60), cut(n.Reason, 200), cut(n.Note, 900)
	n.Warning = cut(n.Warning, 700)
	n.Edges = slices.Clone(n.Edges[:min(len(n.Edges), edgesTold)])
	for i := range n.Edges {
		n.Edges[i].About = cut(n.Edges[i].About, 100)
	}
	for {
		b, err := json.Marshal(n)
		switch {
		case err == nil && len(b) <= NoticeRoom:
			return b
		case len(n.Edges) > 0:
			n.Edges = n.Edges[:len(n.Edges)-1]
		case n.Call != "" || n.Reason != "" || n.Note != "": // quotes and control characters grow
			n.Call, n.Reason, n.Note = cut(n.Call, len(n.Call)/2), cut(n.Reason, len(n.Reason)/2), cut(n.Note, len(n.Note)/2)
		default:
			n.Last, n.Warning = "", cut(n.Warning, len(n.Warning)/2)
		}
	}
}

func cut(s string, n int) string {
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "")
	}
	return s
}

// decode reads what encode wrote; anything else is no notice.
func decode(b []byte) (notice, bool) {
	var n notice
	err := json.Unmarshal(b, &n)
	return n, err == nil
}

// fingerprint is Tag.Fingerprint: equal on all ranks that call alike. The type and op
// are added as they are, so that calls that differ in one of them alone always differ, also where only six bits are
// kept, and reductions that differ in both do where neither is bitwise or logical.
func (b *Binding) fingerprint() uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(b.Call))
	return h.Sum32() + uint32(b.Datatype) + uint32(mem.NumDatatypes)*uint32(b.Op)
}

// called names a collective: put together where it is read, since nearly
// none is.
type called struct {
	name     string
	instance uint32
}

// String returns such as reduce#812.
func (c called) String() string { return RequestName(c.name, c.instance) }

func (b *Binding) name() string { return called{b.Name, b.Instance}.String() }

// describe returns the call in full, for a person.
func (b *Binding) describe() string {
	text := b.Call
	if text == "" {
		text = b.name()
	}
	return text + ", " + b.Datatype.String() + " " + b.Op.String()
}
