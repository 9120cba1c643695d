package schedule

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
)

var (
	kinds   = [...]string{Send: "send", Recv: "recv", RecvReduce: "recvreduce", Copy: "copy", Scale: "scale", Add: "add"}
	buffers = [...]string{In: "in", Out: "out", Scratch: "scratch"}
)

// String returns send, recv, recvreduce, copy, scale or add.
func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// String returns in, out or scratch.
func (b Buffer) String() string {
	if int(b) < len(buffers) {
		return buffers[b]
	}
	return fmt.Sprintf("buffer(%d)", uint8(b))
}

// String returns the range as [from:to].
func (r Range) String() string { return fmt.Sprintf("[%d:%d]", r.Off, r.End()) }

// String returns the range with its buffer, such as out[0:4].
func (r Ref) String() string { return r.Buf.String() + r.Range.String() }

// String returns the op as one line of the text form, without its number.
func (o *Op) String() string {
	var s strings.Builder
	switch o.Kind {
	case Send:
		fmt.Fprintf(&s, "send %s to %d #%d", o.Src, o.Peer, o.Msg)
	case Recv:
		fmt.Fprintf(&s, "recv %s from %d #%d", o.Dst, o.Peer, o.Msg)
	case RecvReduce:
		fmt.Fprintf(&s, "recvreduce %s %s from %d #%d", o.Dst, o.Src, o.Peer, o.Msg)
	case Copy, Scale:
		fmt.Fprintf(&s, "%s %s %s", o.Kind, o.Dst, o.Src)
	case Add:
		fmt.Fprintf(&s, "add %s %s %s", o.Dst, o.Src, o.With)
	default:
		s.WriteString(o.Kind.String())
	}
	for i, d := range o.Deps {
		if i == 0 {
			s.WriteString(" after")
		}
		fmt.Fprintf(&s, " %d", d)
	}
	return s.String()
}

// String returns the text form, one op a line, destinations before sources:
//
//	rank 1 of 3 count 10 scratch 8
//	0: recvreduce scratch[0:4] in[0:4] from 2 #0
//	1: send scratch[0:4] to 0 #0 after 0
func (s *Schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rank %d of %d count %d scratch %d", s.Rank, s.Size, s.Count, s.Scratch)
	if s.Apart {
		b.WriteString(" apart")
	}
	b.WriteByte('\n')
	for i := range s.Ops {
		fmt.Fprintf(&b, "%d: %s\n", i, s.Ops[i].String())
	}
	return b.String()
}

// Parse is the inverse of String. It checks the form alone; package
// schedule/check tells whether the schedule makes sense.
func Parse(text string) (*Schedule, error) {
	s := &Schedule{}
	sc := bufio.NewScanner(strings.NewReader(text))
	sc.Buffer(nil, 1<<20)
	header := false
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSpace(sc.Text())
		if line == "" || strings.HasPrefix(line, "//") {
			continue
		}
		w := &words{rest: strings.Fields(strings.NewReplacer(":", ": ", "[", " ", "]", " ").Replace(line))}
		if !header {
			header = true
			w.expect("rank")
			s.Rank = w.number()
			w.expect("of")
			s.Size = w.number()
			w.expect("count")
			s.Count = w.number()
			w.expect("scratch")
			s.Scratch = w.number()
			if len(w.rest) > 0 {
				w.expect("apart")
				s.Apart = true
			}
		} else {
			s.Ops = append(s.Ops, w.op(len(s.Ops)))
		}
		if w.end(); w.err != nil {
			return nil, fmt.Errorf("schedule: line %d: %q: %w", n, line, w.err)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("schedule: %w", err)
	}
	if !header {
		return nil, fmt.Errorf("schedule: no header line \"rank R of P count N scratch N\"")
	}
	return s, nil
}

// words reads one line of the text form; the first error sticks.
type words struct {
	rest []string
	err  error
}

func (w *words) take() string {
	if len(w.rest) == 0 {
		w.fail("the line ends too early")
		return ""
	}
	t := w.rest[0]
	w.rest = w.rest[1:]
	return t
}

func (w *words) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

func (w *words) expect(word string) {
	if t := w.take(); t != word {
		w.fail("%q where %q is expected", t, word)
	}
}

func (w *words) number() int {
	t := strings.TrimRight(strings.TrimPrefix(w.take(), "#"), ":")
	n, err := strconv.Atoi(t)
	if err != nil || n < 0 {
		w.fail("%q is not a number of at least 0", t)
		return 0
	}
	return n
}

func (w *words) ref() Ref {
	name := w.take()
	for b, known := range buffers {
		if known == name {
			off, end := w.number(), w.number()
			if end < off {
				w.fail("range [%d:%d] ends before it begins", off, end)
			}
			return Buffer(b).At(Range{off, end - off})
		}
	}
	w.fail("unknown buffer %q", name)
	return Ref{}
}

func (w *words) op(index int) Op {
	if n := w.number(); n != index {
		w.fail("op %d where op %d is expected", n, index)
	}
	o := Op{Peer: -1}
	peer := func(preposition string) {
		w.expect(preposition)
		o.Peer = w.number()
		o.Msg = w.number()
	}
	switch kind := w.take(); kind {
	case "send":
		o.Kind, o.Src = Send, w.ref()
		peer("to")
	case "recv":
		o.Kind, o.Dst = Recv, w.ref()
		peer("from")
	case "recvreduce":
		o.Kind, o.Dst, o.Src = RecvReduce, w.ref(), w.ref()
		peer("from")
	case "copy":
		o.Kind, o.Dst, o.Src = Copy, w.ref(), w.ref()
	case "add":
		o.Kind, o.Dst, o.Src, o.With = Add, w.ref(), w.ref(), w.ref()
	case "scale":
		o.Kind, o.Dst, o.Src = Scale, w.ref(), w.ref()
	default:
		w.fail("unknown op %q", kind)
	}
	if len(w.rest) > 0 {
		w.expect("after")
		for more := true; more && w.err == nil; more = len(w.rest) > 0 {
			o.Deps = append(o.Deps, w.number())
		}
	}
	return o
}

func (w *words) end() {
	if w.err == nil && len(w.rest) > 0 {
		w.fail("unexpected %q at the end", w.rest[0])
	}
}
