package sim

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Model is the cost model of a cluster. Times are in seconds, rates in bytes a
// second. See the package comment for what each stands for.
type Model struct {
	// Inter is between nodes, a port's one direction: the first Burst bytes of a collective go through a port that was
	// still before at once (BurstRate), as through a token bucket, which is full again at the next call; 0: none.
	Inter struct{ Latency, Bandwidth, Burst float64 }
	// Packet is the CPU time that either end of a message between nodes spends on each
	// of its packets in the network's library and in the kernel, besides Op.
	Packet float64
	// Carry is how many bytes a second a thread carries to the network or from it, as
	// through the kernel's sockets; 0: the network does that by itself.
	Carry float64
	Intra struct{ Latency float64 } // between ranks of a node
	// Switch is the CPU time after which a core that has served one rank serves another.
	Switch float64
	// Eager is the size in bytes up to which a message between nodes leaves at
	// once; a longer one waits until its receiver has posted.
	Eager float64
	// Op is the CPU time of posting or finishing an op.
	Op float64
	// Short is what Intra.Latency and Op are in a collective of at most ShortBytes, or of parts of that size, among the ranks of
	// a node: its caller executes it alone. Lent is what Op is in one of larger messages, out of
	// registered memory, that callers execute alone.
	Short struct{ Latency, Op, Lent float64 }
	// Core is what one thread reads and writes, Memory what all of a node do at once.
	Core, Memory Rates
	// Staging is how fast one thread copies memory of another process that is not
	// registered.
	Staging Rates
	// Fresh is how fast one thread reads what another core has just written, or
	// writes over what another core has: through both caches.
	Fresh float64
	// Cache is the size in bytes of a core's own cache.
	Cache float64
	// Cores is the number of cores of a machine; 0: as many as ranks.
	Cores float64
	// Hosted is how many nodes are on one machine and share its cores and its memory,
	// as containers are; 0: one, as usual.
	Hosted float64
	// Library.Op is what an end of a message costs the MPI library. Between nodes the first LibraryShort bytes
	// of its collectives go at the rate Library.Short, what is beyond at Library.Bandwidth, where other algorithms
	// may move less. 0: all at Library.Bandwidth, or at the network's.
	Library struct{ Op, Short, Bandwidth float64 }
	// GPU is what GPUs cost whose memory buffers lie in.
	GPU GPU
}

// BurstRate is how many times as fast as the network a burst goes (Model.Inter).
const BurstRate = 10

// LibraryShort is up to how many bytes the MPI library's collectives are short (Model.Library).
const LibraryShort = 16 << 10

// Carrying is for how many seconds all cores of a machine are busy where each of the nodes that it hosts
// sends and receives so many bytes, both counted; 0 where the network does that by itself.
func (m *Model) Carrying(bytes float64) float64 {
	if m.Carry == 0 || m.Cores == 0 {
		return 0
	}
	return float64(max(1, m.Hosted)*bytes) / float64(m.Carry*m.Cores)
}

// Rates are bytes a second, by how much memory is in use at a time: see At.
type Rates struct {
	Cached, Shared, Bandwidth float64
}

// The working sets for which rates stand, in bytes a core: that of Cached is a fourth of
// the core's own cache.
const (
	CachedPart = 4        // of the cache
	SharedSet  = 16 << 20 // of Shared
	MemorySet  = 64 << 20 // of Bandwidth
)

// At returns the rate at which memory is read and written where every core goes
// round in set bytes, and has a cache of the given size. Beyond a cache's size the
// part of the set that it holds falls as 1/set, and with it the time that it saves;
// so the time of a byte is linear in 1/set between the sets that were measured.
func (r Rates) At(set, cache float64) float64 {
	between := func(from, slow, to, fast float64) float64 {
		part := (1/set - 1/from) / (1/to - 1/from) // of to
		return 1 / (float64(part/fast) + float64((1-part)/slow))
	}
	first := cache / CachedPart
	second := max(SharedSet, 2*cache)
	switch {
	case set <= first:
		return r.Cached
	case set <= second:
		return between(second, r.Shared, first, r.Cached)
	case set < max(MemorySet, 2*second):
		return between(max(MemorySet, 2*second), r.Bandwidth, second, r.Shared)
	}
	return r.Bandwidth
}

// Default returns the model that serves where nothing was measured: a network
// of 10 Gbit/s and nodes of a server's memory.
func Default() Model {
	var m Model
	m.Inter.Latency, m.Inter.Bandwidth = 30e-6, 1.25e9
	m.Intra.Latency, m.Switch, m.Packet = 1e-6, 3e-6, 2e-6
	m.Eager = 64<<10 - 1 // of Open MPI over TCP, which counts its header too
	m.Op = 0.5e-6
	m.Short.Latency, m.Short.Op, m.Short.Lent = 0.3e-6, 0.1e-6, 0.2e-6
	m.Core = Rates{50e9, 30e9, 15e9}
	m.Memory = Rates{400e9, 80e9, 40e9}
	m.Staging = Rates{10e9, 8e9, 5e9}
	m.Fresh = 15e9
	m.Cache = 1 << 20
	m.Library.Op = 0.4e-6
	return m
}

// On returns the model for nodes of the given number of cores.
func (m Model) On(cores int) Model {
	m.Cores = float64(cores)
	return m
}

// field is one parameter under its name in the text form.
type field struct {
	name string
	at   *float64
	zero bool // 0 is allowed
}

func (m *Model) fields() []field {
	return []field{
		{"inter.latency", &m.Inter.Latency, true},
		{"inter.bandwidth", &m.Inter.Bandwidth, false},
		{"inter.burst", &m.Inter.Burst, true},
		{"packet", &m.Packet, true},
		{"carry", &m.Carry, true},
		{"intra.latency", &m.Intra.Latency, true},
		{"switch", &m.Switch, true},
		{"eager", &m.Eager, true},
		{"op", &m.Op, true},
		{"short.latency", &m.Short.Latency, true},
		{"short.op", &m.Short.Op, true},
		{"short.lent", &m.Short.Lent, true},
		{"core.cached", &m.Core.Cached, false},
		{"core.shared", &m.Core.Shared, false},
		{"core.bandwidth", &m.Core.Bandwidth, false},
		{"memory.cached", &m.Memory.Cached, false},
		{"memory.shared", &m.Memory.Shared, false},
		{"memory.bandwidth", &m.Memory.Bandwidth, false},
		{"staging.cached", &m.Staging.Cached, false},
		{"staging.shared", &m.Staging.Shared, false},
		{"staging.bandwidth", &m.Staging.Bandwidth, false},
		{"fresh", &m.Fresh, false},
		{"cache", &m.Cache, true},
		{"cores", &m.Cores, true},
		{"hosted", &m.Hosted, true},
		{"library.op", &m.Library.Op, true},
		{"library.short", &m.Library.Short, true},
		{"library.bandwidth", &m.Library.Bandwidth, true},
	}
}

// String returns the text form, name=value for every parameter; of GPUs, none where all are 0. ParseModel
// reads back the same bits.
func (m Model) String() string {
	var words []string
	fields := m.fields()
	if m.GPU != (GPU{}) {
		fields = append(fields, m.GPU.fields()...)
	}
	for _, f := range fields {
		words = append(words, f.name+"="+strconv.FormatFloat(*f.at, 'g', -1, 64))
	}
	return strings.Join(words, " ")
}

// Set sets the parameter of the given name.
func (m *Model) Set(name, value string) error {
	var names []string
	for _, f := range append(m.fields(), m.GPU.fields()...) {
		if f.name != name {
			names = append(names, f.name)
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 || v == 0 && !f.zero {
			return fmt.Errorf("model parameter %s=%q is not a positive number (seconds, bytes a second, or bytes)", name, value)
		}
		*f.at = v
		return nil
	}
	return fmt.Errorf("unknown model parameter %q: use one of %s", name, strings.Join(names, ", "))
}

// ParseModel reads the text form. What it does not name is as in Default.
func ParseModel(text string) (Model, error) {
	m := Default()
	for _, word := range strings.Fields(text) {
		name, value, _ := strings.Cut(word, "=")
		if err := m.Set(name, value); err != nil {
			return Model{}, err
		}
	}
	return m, nil
}
