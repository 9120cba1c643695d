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
	Inter struct{ Latency, Bandwidth float64 } // between nodes, a port's one direction
	Intra struct{ Latency float64 }            // between ranks of a node
	// Eager is the size in bytes up to which a message between nodes leaves at
	// once; a longer one waits until its receiver has posted.
	Eager float64
	// Op is the CPU time of posting or finishing an op.
	Op float64
	// Core is what one thread reads and writes, Memory what all of a node do.
	Core, Memory struct{ Bandwidth float64 }
	// Staging is how fast one thread copies memory that is not registered.
	Staging struct{ Bandwidth float64 }
	// Cache is the size in bytes up to which a running sum stays in cache.
	Cache float64
	// Cores is the number of cores of a node; 0: as many as ranks.
	Cores float64
	// Library is what a message costs the MPI library on the CPU: less than Op,
	// since it has no schedule to follow.
	Library struct{ Op float64 }
}

// Default returns the model that serves where nothing was measured: a network
// of 10 Gbit/s and nodes of a server's memory.
func Default() Model {
	var m Model
	m.Inter.Latency, m.Inter.Bandwidth = 30e-6, 1.25e9
	m.Intra.Latency = 1e-6
	m.Eager = 64 << 10
	m.Op = 0.5e-6
	m.Core.Bandwidth, m.Memory.Bandwidth = 20e9, 40e9
	m.Staging.Bandwidth = 5e9
	m.Cache = 2 << 20
	m.Library.Op = 0.4e-6
	return m
}

// On returns the model for nodes of ppn ranks on the given number of cores.
// Where ranks outnumber cores, they sleep and have to be woken: every message
// and every op takes several times as long.
func (m Model) On(ppn, cores int) Model {
	m.Cores = float64(cores)
	if ppn > cores {
		m.Intra.Latency = 10 * m.Intra.Latency
		m.Op *= 3
		m.Library.Op *= 3
	}
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
		{"intra.latency", &m.Intra.Latency, true},
		{"eager", &m.Eager, true},
		{"op", &m.Op, true},
		{"core.bandwidth", &m.Core.Bandwidth, false},
		{"memory.bandwidth", &m.Memory.Bandwidth, false},
		{"staging.bandwidth", &m.Staging.Bandwidth, false},
		{"cache", &m.Cache, true},
		{"cores", &m.Cores, true},
		{"library.op", &m.Library.Op, true},
	}
}

// String returns the text form, name=value for every parameter. ParseModel
// reads back the same bits.
func (m Model) String() string {
	var words []string
	for _, f := range m.fields() {
		words = append(words, f.name+"="+strconv.FormatFloat(*f.at, 'g', -1, 64))
	}
	return strings.Join(words, " ")
}

// Set sets the parameter of the given name.
func (m *Model) Set(name, value string) error {
	var names []string
	for _, f := range m.fields() {
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
