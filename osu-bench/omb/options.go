package omb

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// Options are what a command line asks for.
type Options struct {
	Min, Max                    int // bytes
	Iterations, IterationsLarge int // up to and above Large bytes
	Warmup, WarmupLarge         int
	Full, Validate, InPlace     bool
	Types                       []Type
	Root                        int // a rank, or Rotate
	Percentiles                 []int
	MemLimit                    int // bytes
	Tests                       int // calls of Test under computation
	Window                      int // messages of the bandwidth test

	Table        string        // file of the tuning table that tuned selects by
	Factor       int           // each message's size over that of the one before
	Algorithms   []string      // what to compare; one or none is OMB's table
	Format       string        // text, csv or json
	Buffers      string        // registered or unregistered; cuda in a GPU's memory
	Compute      string        // spin or wait
	ComputeScale float64       // length of the computation, in pure communication times
	Barrier      string        // auto, mpi or scaffe
	Inputs       string        // kept or written
	Settle       time.Duration // of calls that are not measured, before each turn of a subject
	Persistent   bool          // requests made once for each size
	Local        int           // ranks in this process; 0: mpirun's
	Deadline     time.Duration

	CUDA          bool // buffers lie in a GPU's memory
	Help, Version bool

	// corrupt spoils a result before it is checked, in tests of the check.
	corrupt func(rank, iteration int, out mem.Buffer)
}

// The values of Options.Inputs.
const (
	kept    = "kept"
	written = "written"
)

// Rotate, as the root, makes it another rank in every iteration.
const Rotate = -1

// Large is the number of bytes above which OMB does fewer iterations.
const Large = 8192

// Type is a datatype with the name it was asked for by.
type Type struct {
	Name string // MPI_CHAR, or a name of package mem
	mem.Datatype
}

// mpiTypes are OMB's, in its order. The reductions of MPI_CHAR are those of u8.
var mpiTypes = []Type{{"MPI_CHAR", mem.Uint8}, {"MPI_INT", mem.Int32}, {"MPI_FLOAT", mem.Float32}}

// defaults returns OMB's for a program.
func defaults(p Program) Options {
	o := Options{
		Min: 1, Max: 1 << 20, Iterations: 1000, IterationsLarge: 100, Warmup: 100, WarmupLarge: 10,
		MemLimit: 512 << 20, Window: 64, Factor: 2,
		Format: "text", Buffers: "registered", Compute: "spin", ComputeScale: 1, Barrier: "auto", Inputs: kept, Deadline: nbc.DefaultDeadline,
	}
	switch p.kind {
	case latency:
		o.Min, o.Max = 0, 4<<20
		o.Iterations, o.IterationsLarge = 10000, 1000
	case bandwidth:
		o.Max = 4 << 20
		o.Iterations, o.IterationsLarge, o.Warmup, o.WarmupLarge = 100, 20, 10, 2
	}
	return o
}

// UsageError is an error in the command line of a program.
type UsageError struct {
	Program string
	Err     error
}

// Error names the program.
func (e *UsageError) Error() string { return e.Program + ": " + e.Err.Error() }

// Unwrap returns the error without the program.
func (e *UsageError) Unwrap() error { return e.Err }

// Parse reads a command line of p, without the program's name. Its errors are
// *UsageError.
func Parse(p Program, args []string) (*Options, error) {
	o := defaults(p)
	if err := parseOptions(&o, optionsOf(p), args); err != nil {
		return nil, &UsageError{p.Name, err}
	}
	if o.Help || o.Version {
		return &o, nil
	}
	if len(o.Types) == 0 {
		o.Types = mpiTypes[:1]
	}
	if o.CUDA {
		if p.is(local) {
			return nil, &UsageError{p.Name, errors.New("invalid -d cuda: this program is about the CPU's kernels")}
		}
		o.Buffers = selection.CUDA.String()
	}
	if o.Inputs == written && o.CUDA {
		return nil, &UsageError{p.Name, errors.New("invalid --inputs written: it is for the caches of cores, and -d cuda has buffers in a GPU's memory")}
	}
	if o.Settle > 0 && o.Validate {
		return nil, &UsageError{p.Name, errors.New("--settle cannot be used with -c: results are checked call by call, so each is measured")}
	}
	if o.Min > o.Max {
		return nil, &UsageError{p.Name, fmt.Errorf("invalid -m: the smallest size (%d bytes) is larger than the largest (%d bytes)", o.Min, o.Max)}
	}
	return &o, nil
}

// optionsOf returns the options that p has.
func optionsOf(p Program) []option {
	var has []option
	for _, q := range allOptions {
		if q.kinds&p.kind != 0 {
			has = append(has, q)
		}
	}
	return has
}

var allOptions = []option{
	{'h', "help", none, all, "", "print this help and exit", func(o *Options, _ string) error { o.Help = true; return nil }},
	{'v', "version", none, all, "", "print the version and exit", func(o *Options, _ string) error { o.Version = true; return nil }},
	{'m', "message-size", required, withData, "[MIN:]MAX", "smallest and largest message in bytes, as in -m 128, -m 2:128, -m 2: (MIN 0 is the smallest possible); K, M and G are binary suffixes", setSizes},
	{'i', "iterations", required, all, "N", "measure N iterations", func(o *Options, v string) error {
		n, err := number(v, 1)
		o.Iterations, o.IterationsLarge = n, n
		return err
	}},
	{'x', "warmup", required, all, "N", "run N warm-up iterations first", func(o *Options, v string) error {
		n, err := number(v, 0)
		o.Warmup, o.WarmupLarge = n, n
		return err
	}},
	{'f', "full", none, collective | local, "", "also print the minimum and maximum of the ranks, and the iterations", func(o *Options, _ string) error { o.Full = true; return nil }},
	{'c', "validation", none, withData, "", "check every element of every iteration", func(o *Options, _ string) error { o.Validate = true; return nil }},
	{'d', "accelerator", required, withData, "DEVICE", "memory of the buffers: cpu or cuda", setDevice},
	{'T', "type", required, withData, "TYPE", "all, mpi_char (the default; reductions use u8), mpi_int, mpi_float; or f32, f64, f16, bf16, i8 to i64, u8 to u64; may be repeated", setType},
	{'k', "root-rank", required, rooted, "ROOT", "root: fixed:RANK, or rotate (another rank in every iteration)", setRoot},
	{'z', "tail-lat", optional, all, "[P,…]", "percentiles over iterations, without a space: -z50,90,99 (the default)", setPercentiles},
	{'M', "mem-limit", required, blocking | nonblocking | local, "BYTES", "limit the largest message to BYTES, whatever -m says", setMemLimit},
	{'l', "in-place", none, placing, "", "put the result in the buffer of the rank's own contribution", func(o *Options, _ string) error { o.InPlace = true; return nil }},
	{'t', "num-test-calls", required, nonblocking, "N", "call Test N times, spread over the computation", func(o *Options, v string) (err error) { o.Tests, err = number(v, 0); return err }},
	{'W', "window-size", required, bandwidth, "N", "send N messages before the receiver answers", func(o *Options, v string) (err error) { o.Window, err = number(v, 1); return err }},

	{0, "algorithm", required, all, "SPEC,…", "compare these algorithms, interleaved; may be repeated", addAlgorithms},
	{0, "table", required, collective, "FILE", "tuning table that tuned selects by", func(o *Options, v string) error { o.Table = v; return nil }},
	{0, "format", required, all, "FORMAT", "output format: text, csv or json (one object per line)", word(func(o *Options) *string { return &o.Format }, "text", "csv", "json")},
	{0, "factor", required, withData, "N", "multiply the message size by N from one to the next (default 2)", func(o *Options, v string) (err error) { o.Factor, err = number(v, 2); return err }},
	{0, "buffers", required, withData, "WHERE", "memory of the buffers: registered (from Comm.Alloc, shared by the ranks of a node) or unregistered (private)", setBuffers},
	{0, "barrier", required, collective, "WHOSE", "barrier before every timed call: mpi, scaffe, or auto (mpi where every rank has a core)", word(func(o *Options) *string { return &o.Barrier }, "auto", "mpi", "scaffe")},
	{0, "inputs", required, blocking | nonblocking, "HOW", "each rank's own contribution: kept as it is (as OMB), or written before every call, as by a program that has just computed it", word(func(o *Options) *string { return &o.Inputs }, kept, written)},
	{0, "settle", required, collective, "TIME", "before each turn of an algorithm call it for TIME without measuring, so that it finds caches and links as it leaves them itself", func(o *Options, v string) (err error) {
		if o.Settle, err = time.ParseDuration(v); err != nil || o.Settle <= 0 {
			return errors.New("want a positive time such as 5ms")
		}
		return nil
	}},
	{0, "persistent", none, blocking | nonblocking, "", "create scaffe's requests once for each size and start them repeatedly", func(o *Options, _ string) error { o.Persistent = true; return nil }},
	{0, "compute", required, nonblocking, "HOW", "computation: spin (on this core, as OMB) or wait (idle, as for an accelerator)", word(func(o *Options) *string { return &o.Compute }, "spin", "wait")},
	{0, "compute-scale", required, nonblocking, "F", "length of the computation relative to the pure communication (default 1)", func(o *Options, v string) (err error) {
		if o.ComputeScale, err = strconv.ParseFloat(v, 64); err != nil || !(o.ComputeScale > 0 && o.ComputeScale < 1e6) {
			return errors.New("want a positive number")
		}
		return nil
	}},
	{0, "local", required, all, "N", "run N ranks in this process instead of under mpirun", func(o *Options, v string) (err error) { o.Local, err = number(v, 1); return err }},
	{0, "deadline", required, all, "TIME", "abort a collective that takes longer than TIME, such as 30s", func(o *Options, v string) (err error) {
		if o.Deadline, err = time.ParseDuration(v); err != nil || o.Deadline <= 0 {
			return errors.New("want a positive time such as 30s")
		}
		return nil
	}},
}

func number(v string, least int) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < least {
		return 0, fmt.Errorf("want a whole number of at least %d", least)
	}
	return n, nil
}

// word returns what sets an option to one of some words.
func word(at func(*Options) *string, words ...string) func(*Options, string) error {
	return func(o *Options, v string) error {
		for _, w := range words {
			if v == w {
				*at(o) = w
				return nil
			}
		}
		return fmt.Errorf("want one of %s", strings.Join(words, ", "))
	}
}

// setBuffers reads a kind of buffers, also by its older name.
func setBuffers(o *Options, v string) error {
	kind, err := selection.ParseBufferKind(v)
	if err != nil || kind == selection.CUDA {
		return errors.New("want one of registered, unregistered")
	}
	o.Buffers = kind.String()
	return nil
}

func setSizes(o *Options, v string) error {
	low, high, both := strings.Cut(v, ":")
	if !both {
		low, high = "", v
	}
	if low == "" && high == "" || strings.Contains(high, ":") {
		return errors.New("want [MIN:]MAX in bytes")
	}
	var err error
	if low != "" {
		var least int
		if least, err = units.ParseBytes(low); least > 0 {
			o.Min = least // 0 is the program's own smallest, as in OMB
		}
	}
	if high != "" && err == nil {
		o.Max, err = units.ParseBytes(high)
	}
	return err
}

func setMemLimit(o *Options, v string) (err error) {
	if o.MemLimit, err = units.ParseBytes(v); err == nil && o.MemLimit < 1<<20 {
		err = errors.New("want at least 1M")
	}
	return err
}

func setDevice(o *Options, v string) error {
	switch v = strings.ToLower(v); v {
	case "cpu", "host", "cuda":
		o.CUDA = v == "cuda"
		return nil
	case "managed", "rocm", "openacc":
		return errors.New("this memory is not supported: use -d cpu or -d cuda")
	}
	return errors.New("want cpu or cuda")
}

func setType(o *Options, v string) error {
	if strings.EqualFold(v, "all") {
		o.Types = append(o.Types, mpiTypes...)
		return nil
	}
	for _, t := range mpiTypes {
		if strings.EqualFold(v, t.Name) {
			o.Types = append(o.Types, t)
			return nil
		}
	}
	dt, err := mem.ParseDatatype(v)
	if err != nil {
		return fmt.Errorf("want all, mpi_char, mpi_int, mpi_float, or one of %v", mem.Datatypes)
	}
	o.Types = append(o.Types, Type{v, dt})
	return nil
}

func setRoot(o *Options, v string) error {
	rank, fixed := strings.CutPrefix(v, "fixed:")
	switch {
	case v == "rotate":
		o.Root = Rotate
		return nil
	case !fixed:
		return errors.New("want fixed:RANK or rotate")
	}
	var err error
	o.Root, err = number(rank, 0)
	return err
}

func setPercentiles(o *Options, v string) error {
	if v == "" {
		v = "50,90,99"
	}
	o.Percentiles = nil
	for f := range strings.SplitSeq(v, ",") {
		n, err := number(f, 1)
		if err != nil || n > 100 {
			return errors.New("want percentiles from 1 to 100, as in -z50,90")
		}
		o.Percentiles = append(o.Percentiles, n)
	}
	return nil
}

// continues matches a piece between commas that belongs to the spec before
// it: an option of a level, such as chunk=512K/binomial, or the one of mpi.
var continues = regexp.MustCompile(`^([a-z]+=|blocking$)`)

// addAlgorithms takes specs separated by commas or semicolons. The commas
// within a spec come before an option of a level.
func addAlgorithms(o *Options, v string) error {
	for part := range strings.SplitSeq(v, ";") {
		start := len(o.Algorithms)
		for piece := range strings.SplitSeq(part, ",") {
			if piece = strings.TrimSpace(piece); continues.MatchString(piece) && len(o.Algorithms) > start {
				o.Algorithms[len(o.Algorithms)-1] += "," + piece
				continue
			}
			if piece == "" {
				return errors.New("empty spec")
			}
			o.Algorithms = append(o.Algorithms, piece)
		}
	}
	return nil
}
