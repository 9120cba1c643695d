package spec

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/scaffe/scaffe/binomial"
	"github.com/scaffe/scaffe/chain"
	"github.com/scaffe/scaffe/direct"
	"github.com/scaffe/scaffe/doubling"
	"github.com/scaffe/scaffe/halving"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/linear"
	"github.com/scaffe/scaffe/ring"
	"github.com/scaffe/scaffe/scatter"
	"github.com/scaffe/scaffe/schedule"
)

// DefaultChunk is the pipeline unit in bytes of a level that names none.
const DefaultChunk = 256 << 10

// Spec says how a collective is done: one algorithm a level, lowest level
// first. Its text form is used wherever people meet it, in flags, tables,
// logs and benchmark rows:
//
//	binomial                          one level
//	chain:8/binomial                  chains of 8, their heads in a tree (S-Caffe's CB-8)
//	chain:4,chunk=512K/chain:4/chain  three levels
//	direct/ring                       memory within each node, a ring of their leaders
//	chain:node/binomial               chains of a node's ranks
//	doubling                          recursive doubling: allreduce and allgather of few bytes
//	halving                           recursive halving and doubling (Rabenseifner): allreduce
//	mpi                               the MPI library's own collective, in its non-blocking form
//	mpi,blocking                      the same in its blocking form, for blocking calls
//
// The lowest level groups as many consecutive ranks, counted from the root,
// as its size says, or those of a node; the first of each group, its leader,
// goes on to the next level. The last level has no size: it takes all who are
// left. The ranks of a node count as consecutive whatever their numbers.
type Spec struct{ Levels []Level }

// Level is one level of a Spec.
type Level struct {
	Algorithm string // a key of the table below, or Library
	Size      int    // ranks a group; Node; or 0 at the last level: all
	Chunk     int    // pipeline unit in bytes; 0: DefaultChunk
	Blocking  bool   // of Library: its blocking form
}

const (
	// Node, as the Size of a level, groups the ranks of each node.
	Node = -1
	// Library is the algorithm of a spec that leaves the collective to the MPI
	// library.
	Library = "mpi"
	// Tuned is the name of a spec without levels: what is selected for each call.
	Tuned = "tuned"
)

var algorithms = map[string]schedule.Algorithm{
	"linear":   {Reduce: linear.Reduce, Bcast: linear.Bcast, Allgather: linear.Allgather, Gather: linear.Gather, Scatter: linear.Scatter, Alltoall: linear.Alltoall},
	"chain":    {Reduce: chain.Reduce, Bcast: chain.Bcast},
	"binomial": {Reduce: binomial.Reduce, Bcast: binomial.Bcast, Gather: binomial.Gather, Scatter: binomial.Scatter},
	"direct":   {Reduce: direct.Reduce, Bcast: direct.Bcast, Allreduce: direct.Allreduce, Allgather: direct.Allgather, ReduceScatter: direct.ReduceScatter, Alltoall: direct.Alltoall},
	"ring":     {Allreduce: ring.Allreduce, Order: ring.Order, Allgather: ring.Allgather, ReduceScatter: ring.ReduceScatter},
	"scatter":  {Bcast: scatter.Bcast},
	"doubling": {Allreduce: doubling.Allreduce, Allgather: doubling.Allgather},
	"halving":  {Allreduce: halving.Allreduce, Order: halving.Order},
}

// IsLibrary reports whether the spec leaves the collective to the MPI library.
func (s Spec) IsLibrary() bool { return len(s.Levels) == 1 && s.Levels[0].Algorithm == Library }

// LibraryBlocks reports whether the spec leaves the collective to the blocking form
// of the MPI library's. A rank inside of it hears of no deadline and of no other
// rank's failure, and where it does not come out its process ends; so it is never
// selected, only asked for by name.
func (s Spec) LibraryBlocks() bool { return s.IsLibrary() && s.Levels[0].Blocking }

// Algorithms lists the names that a level may have.
func Algorithms() []string {
	names := []string{Library}
	for n := range algorithms {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// paperName matches S-Caffe's names of section 6.5: CB-8 is chains of 8 below
// a binomial tree, CC-8 chains of 8 below a chain.
var paperName = regexp.MustCompile(`^(?i)c([bc])-(\d+)$`)

// Parse reads the text form of a Spec.
func Parse(text string) (Spec, error) {
	fail := func(format string, args ...any) (Spec, error) {
		return Spec{}, fmt.Errorf("algorithm spec %q: %s", text, fmt.Sprintf(format, args...))
	}
	if m := paperName.FindStringSubmatch(text); m != nil {
		upper := map[string]string{"b": "binomial", "c": "chain"}[strings.ToLower(m[1])]
		return Parse("chain:" + m[2] + "/" + upper)
	}
	var s Spec
	parts := strings.Split(text, "/")
	for i, part := range parts {
		l, err := parseLevel(part)
		if err != nil {
			return fail("level %d: %v", i, err)
		}
		if l.Algorithm == "direct" && l.Size == 0 && i < len(parts)-1 {
			l.Size = Node // where else would ranks read each other's memory
		}
		s.Levels = append(s.Levels, l)
	}
	if err := s.Validate(); err != nil {
		return fail("%v", err)
	}
	return s, nil
}

// Name returns the text of a spec, Tuned for one without levels.
func (s Spec) Name() string {
	if len(s.Levels) == 0 {
		return Tuned
	}
	return s.String()
}

// Validate reports what is wrong with a spec, however it was made.
func (s Spec) Validate() error {
	if len(s.Levels) == 0 {
		return errors.New("a spec needs at least one level")
	}
	if s.IsLibrary() {
		if l := s.Levels[0]; l.Size != 0 || l.Chunk != 0 {
			return fmt.Errorf("%s is the MPI library's own: it takes no size and no chunk", Library)
		}
		return nil
	}
	for i, l := range s.Levels {
		last := i == len(s.Levels)-1
		switch a, known := algorithms[l.Algorithm]; {
		case l.Algorithm == Library:
			return fmt.Errorf("level %d: %s is the MPI library's own and stands alone", i, Library)
		case l.Blocking:
			return fmt.Errorf("level %d: blocking is for %s alone", i, Library)
		case !known:
			return fmt.Errorf("level %d: unknown algorithm %q: use one of %s, or S-Caffe's names such as CB-8", i, l.Algorithm, strings.Join(Algorithms(), ", "))
		case !last && a.Reduce == nil:
			return fmt.Errorf("level %d: %s is for %s at the last level", i, l.Algorithm, listed(a.Collectives()))
		case l.Size < 0 && l.Size != Node || l.Chunk < 0:
			return fmt.Errorf("level %d (%s): a group size of %d and a chunk of %d bytes must not be negative", i, l.Algorithm, l.Size, l.Chunk)
		case !last && l.Size == 0:
			return fmt.Errorf("level %d (%s) needs a group size, as in %s:8: only the last level takes all ranks", i, l.Algorithm, l.Algorithm)
		case last && l.Size != 0:
			return fmt.Errorf("the last level (%s) takes all ranks that are left and has no size; leave it out, or add a level above it", l.Algorithm)
		}
	}
	return nil
}

// Serves reports why a spec cannot do a collective; nil where it can.
func (s Spec) Serves(c schedule.Collective) error {
	if why, one := oneLevel[c]; one && len(s.Levels) > 1 {
		return fmt.Errorf("spec %v: %s", s, why)
	}
	if last := s.Levels[len(s.Levels)-1].Algorithm; !s.IsLibrary() && !algorithms[last].Serves(c) {
		return fmt.Errorf("spec %v is for %s, as %s is: use another one for %v", s, listed(algorithms[last].Collectives()), last, c)
	}
	return nil
}

// oneLevel are the collectives that a single algorithm does, and why.
var oneLevel = map[schedule.Collective]string{
	schedule.Alltoall: "an alltoall is done at one level, of which every rank has its own message for every other",
	schedule.Gather:   "a gather is done at one level: use linear, or binomial, which is a tree by itself",
	schedule.Scatter:  "a scatter is done at one level: use linear, or binomial, which is a tree by itself",
}

// listed returns the names of collectives as a person lists them.
func listed(all []schedule.Collective) string {
	text := ""
	for i, c := range all {
		switch {
		case i > 0 && i == len(all)-1:
			text += " and "
		case i > 0:
			text += ", "
		}
		text += c.String()
	}
	return text
}

func parseLevel(text string) (Level, error) {
	parts := strings.Split(text, ",")
	name, size, sized := strings.Cut(parts[0], ":")
	l := Level{Algorithm: name}
	if sized && size == "node" {
		l.Size = Node
	} else if sized {
		n, err := strconv.Atoi(size)
		if err != nil || n < 1 || n > 1<<20 {
			return Level{}, fmt.Errorf("group size %q of %s is neither a number from 1 on nor node", size, name)
		}
		l.Size = n
	}
	for _, option := range parts[1:] {
		key, value, _ := strings.Cut(option, "=")
		if option == blocking && name == Library {
			l.Blocking = true
			continue
		}
		switch {
		case key != "chunk":
			return Level{}, fmt.Errorf("unknown option %q of %s: the option is %s", key, name, optionOf(name))
		case l.Chunk != 0:
			return Level{}, fmt.Errorf("chunk of %s is given twice", name)
		}
		n, err := units.ParseBytes(value)
		if err != nil || n < 1 {
			return Level{}, fmt.Errorf("chunk %q of %s is not a size such as 65536, 512K or 1M", value, name)
		}
		l.Chunk = n
	}
	return l, nil
}

// blocking is the option of Library.
const blocking = "blocking"

// optionOf returns the option that a level of an algorithm may have.
func optionOf(algorithm string) string {
	if algorithm == Library {
		return blocking
	}
	return "chunk=BYTES"
}

// String returns the text form, which Parse reads back.
func (s Spec) String() string {
	var b strings.Builder
	for i, l := range s.Levels {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(l.Algorithm)
		switch {
		case l.Size > 0:
			fmt.Fprintf(&b, ":%d", l.Size)
		case l.Size == Node && l.Algorithm != "direct":
			b.WriteString(":node")
		}
		if l.Chunk > 0 {
			b.WriteString(",chunk=" + units.FormatBytes(l.Chunk))
		}
		if l.Blocking {
			b.WriteString("," + blocking)
		}
	}
	return b.String()
}
