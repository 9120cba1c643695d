package selection

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/sim"
)

// LibraryBytes is up to how many bytes the built-in rule may give a blocking
// call between nodes to the MPI library. Beyond, the library's algorithm is
// unknown to the model, and measuring decides (scaffe tune). Within a node the
// shared memory of package nbc/shm is faster: the library's collective is started
// and polled by the same loop, on top of what it costs itself. (That its blocking
// call takes a fraction of either is no choice: inside of it a rank would miss
// deadlines, signals and questions.)
const LibraryBytes = 64 << 10

// Query is what a selection depends on, besides the layout of the ranks. It is
// equal on all ranks of a call.
type Query struct {
	Collective schedule.Collective
	Bytes      int
	Type       mem.Datatype
	Buffers    BufferKind
	// Blocking says that the caller waits at once: Reduce rather than Ireduce.
	Blocking bool
	// Library says that there is an MPI library that may serve the call: the
	// communicator is the world's, and the call has no deadline of its own,
	// which the library could not keep.
	Library bool
	// Wraps says that the result wraps around where it does not fit (see Wraps).
	Wraps bool
}

// Wraps reports whether a call's result may not fit, and an MPI library's own may then not wrap around: sums of
// integers of 8 and 16 bits saturate under Open MPI 4.1 where the processor has AVX.
func Wraps(v schedule.Collective, dt mem.Datatype, op mem.Op) bool {
	return v.Reduces() && op == mem.Sum && !dt.Float() && dt.Size() <= 2
}

// libraryServes reports whether a rule or a model may give the call to the
// library. It takes blocking calls alone, of types that MPI has.
func (q Query) libraryServes() bool {
	return q.Library && q.Blocking && !q.Wraps && q.Buffers != CUDA && q.Type != mem.Float16 && q.Type != mem.BFloat16
}

// Choice is the spec that serves a call, and how it was found.
type Choice struct {
	Spec spec.Spec
	// Source says in a word what decided: "call", "--algorithm",
	// "SCAFFE_ALGORITHM", FILE:LINE, or "model".
	Source string
	// Why says it in a sentence.
	Why string
	// Predicted is how long the model thinks that it takes. RunnerUp is the
	// model's best candidate of other algorithms; it has no levels where there is none.
	Predicted         time.Duration
	RunnerUp          spec.Spec
	RunnerUpPredicted time.Duration

	// Text is Spec's text form.
	Text string
}

// Source is something that may decide: a spec for all calls, or a table.
type Source struct {
	Name  string    // --algorithm, SCAFFE_ALGORITHM; of a table, the file
	Spec  spec.Spec // no levels where it is a table
	Table *Table
}

// Selector selects. It is immutable, and ranks whose Selectors are equal select
// alike.
type Selector struct {
	// Sources are asked in this order; the model decides where none does.
	Sources []Source
	// Model is the cost model, From where it comes from, in words.
	Model sim.Model
	From  string
}

// defaultFrom is From where nothing says what the cluster is like.
const defaultFrom = "default parameters"

// Default returns the Selector that serves where nothing was configured.
func Default() *Selector { return &Selector{Model: sim.Default(), From: defaultFrom} }

// Always returns a Selector that gives the same spec to every call that does not
// ask for another.
func Always(s spec.Spec) *Selector {
	sel := Default()
	sel.Sources = []Source{{Name: flagAlgorithm, Spec: s}}
	return sel
}

// Assumes reports whether nothing has said what the cluster is like, so that the
// model is the default one.
func (s *Selector) Assumes() bool { return s.From == defaultFrom }

// satisfies reports why a spec that somebody asked for cannot serve a call.
func satisfies(s spec.Spec, q Query) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if s.IsLibrary() && q.Buffers == CUDA {
		return fmt.Errorf("spec %s: the MPI library's own collectives are not used on %v memory: use an algorithm of scaffe's own", s, mem.CUDA)
	}
	if s.IsLibrary() && !q.Library {
		return fmt.Errorf("spec %s: the MPI library's own needs a program started by mpirun, the communicator of all ranks, and a call without a deadline of its own", s)
	}
	if s.LibraryBlocks() && !q.Blocking {
		return fmt.Errorf("spec %s: the library's blocking form is for blocking calls alone: use %s", s, spec.Library)
	}
	return s.Serves(q.Collective)
}

// Select returns what serves a call. asked is what the call itself asks for; it
// has no levels where it leaves the choice. What somebody asked for and cannot
// be had is an error, never passed over.
func (s *Selector) Select(l spec.Layout, q Query, asked spec.Spec) (Choice, error) {
	return s.Batch().Select(l, q, asked)
}

// Select is the selector's.
func (s *Batch) Select(l spec.Layout, q Query, asked spec.Spec) (Choice, error) {
	if len(asked.Levels) > 0 {
		return s.asked("call", "the call asks for it", asked, q)
	}
	for _, src := range s.Sources {
		if src.Table == nil {
			return s.asked(src.Name, src.Name+" asks for it", src.Spec, q)
		}
		if r := src.Table.Find(l, q); r != nil {
			at := fmt.Sprintf("%s:%d", src.Table.Name, r.Line)
			return Choice{Spec: r.Spec, Source: at, Why: fmt.Sprintf("%s: %v", at, r), Text: r.Spec.String()}, nil
		}
	}
	best := s.first(l, s.Class(q))
	return Choice{
		Spec: best.Spec, Source: "model", Text: best.Spec.String(),
		Why: fmt.Sprintf("the built-in cost model (%s) finds it the fastest for %v", s.From, l),
	}, nil
}

// Batch answers many questions as its selector does, and builds and simulates the schedules that their predictions
// have in common once, which it keeps. It is not for concurrent use.
type Batch struct {
	*Selector
	plans plans
}

// Batch returns one that has answered nothing yet.
func (s *Selector) Batch() *Batch { return &Batch{s, newPlans()} }

// Predict is Predict under the selector's model.
func (s *Batch) Predict(l spec.Layout, q Query, how spec.Spec) float64 {
	return s.plans.prediction(q.Collective, q.Bytes, how, l, q.Buffers).under(s.Model)
}

// Class returns the query that stands for all that are answered as q is, so that answers
// can be kept by it: where the model decides, two sizes of buffers for every power of
// two, of which the larger one is asked about.
func (s *Selector) Class(q Query) Query {
	if q.Bytes > 2 && !s.hasTable() {
		power := 1 << (bits.Len(uint(q.Bytes-1)) - 1) // power < q.Bytes <= 2*power
		if q.Bytes <= power+power/2 {
			q.Bytes = power + power/2
		} else {
			q.Bytes = 2 * power
		}
	}
	return q
}

// Below returns the largest size that is below those of a class, which Class has returned: its own where it stands for no other.
func (s *Selector) Below(class Query) int {
	if class.Bytes <= 2 || s.hasTable() {
		return class.Bytes
	}
	return class.Bytes - 1<<(bits.Len(uint(class.Bytes-1))-2)
}

func (s *Selector) hasTable() bool {
	return slices.ContainsFunc(s.Sources, func(src Source) bool { return src.Table != nil })
}

func (s *Selector) asked(source, why string, asked spec.Spec, q Query) (Choice, error) {
	if err := satisfies(asked, q); err != nil {
		return Choice{}, fmt.Errorf("%s: %w", source, err)
	}
	return Choice{Spec: asked, Source: source, Why: why, Text: asked.String()}, nil
}

// Explain is Select with the predictions filled in.
func (s *Selector) Explain(l spec.Layout, q Query, asked spec.Spec) (Choice, error) {
	c, err := s.Select(l, q, asked)
	if err != nil {
		return c, err
	}
	c.Predicted = seconds(Predict(q.Collective, q.Bytes, c.Spec, l, s.Model, q.Buffers))
	for _, o := range s.Candidates(l, q) {
		if !sameShape(o.Spec, c.Spec) {
			c.RunnerUp, c.RunnerUpPredicted = o.Spec, seconds(o.Seconds)
			break
		}
	}
	return c, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Find returns the first rule for a call, nil where there is none.
func (t *Table) Find(l spec.Layout, q Query) *Rule {
	for i := range t.Rules {
		if t.Rules[i].matches(l, q) {
			return &t.Rules[i]
		}
	}
	return nil
}
