package selection

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/internal/host"
	"github.com/scaffe/scaffe/schedule/sim"
)

// EnvMeasure says whether ranks measure the machine that they start on.
const EnvMeasure = "SCAFFE_MEASURE"

// The values of EnvMeasure.
const (
	MeasureOnce  = "once"  // unless it was measured before
	MeasureAgain = "again" // in any case, and forget what was kept
	MeasureOff   = "off"   // never: default parameters
)

// Node is what the measurements of a machine depend on, besides the number of ranks.
type Node struct {
	Machine
	// Cache is the size in bytes of a core's own cache; 0 where that is not known.
	Cache int
	// How says the rest: the program's version, how ranks of a node exchange
	// messages, other caches.
	How string
}

// Kept is what was measured of a machine, as it is kept from run to run; or of a GPU of one, which has a file of its own.
type Kept struct {
	Node     Node
	PPN      int    // ranks that were on the node
	CPUs     int    // cores that the first of them might use
	GPU      string `json:",omitempty"` // its kind; PPN and CPUs are 0 then
	Measured []Measured
}

// Measured is what one start measured.
type Measured struct {
	Date  string
	Costs Costs
}

// EnoughMeasured is how many starts measure a machine, unless EnvMeasure says otherwise: the one counts that the others resemble
// most, so that one of them may be disturbed for as long as it lasts.
const EnoughMeasured = 3

// keptFormat is part of what identifies a file: another one is measured anew.
const keptFormat = 6

// file returns the path of what is kept in a folder for k's machine.
func (k Kept) file(dir string) string {
	h := fnv.New64a()
	if k.GPU != "" {
		fmt.Fprintln(h, keptFormat, k.Node, k.GPU)
		return filepath.Join(dir, fmt.Sprintf("gpu-%016x.json", h.Sum64()))
	}
	fmt.Fprintln(h, keptFormat, k.Node, k.PPN, k.CPUs)
	return filepath.Join(dir, fmt.Sprintf("machine-%016x.json", h.Sum64()))
}

// KeptFolder returns the folder in which measurements of machines are kept: scaffe in
// the user's cache folder.
func KeptFolder() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "scaffe"), nil
}

// Load fills in what was measured of k's machine. It reports whether there is
// anything; what is there and cannot be used is an error.
func (k *Kept) Load(dir string) (bool, error) {
	read, err := readKept(k.file(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case read.Node != k.Node || read.PPN != k.PPN || read.CPUs != k.CPUs || read.GPU != k.GPU:
		return false, nil // another machine, or GPU, of the same hash
	}
	*k = read
	return true, nil
}

func readKept(path string) (k Kept, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return k, err
	}
	if err := json.Unmarshal(text, &k); err != nil {
		return k, fmt.Errorf("%s: %w", path, err)
	}
	if len(k.Measured) == 0 {
		return k, fmt.Errorf("%s: nothing was measured", path)
	}
	for _, m := range k.Measured {
		for _, v := range m.Costs.Values() {
			if v < 0 || v > 1 || math.IsNaN(v) {
				return k, fmt.Errorf("%s: a cost of %g s", path, v)
			}
		}
	}
	return k, nil
}

// Save keeps k.
func (k Kept) Save(dir string) error {
	text, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return atomicfile.Write(nil, k.file(dir), append(text, '\n'))
}

// AllKept returns what is kept of a machine, for every number of ranks on it, the
// fewest first. Files that cannot be read are left out.
func AllKept(dir string, n Node) []Kept {
	paths, err := filepath.Glob(filepath.Join(dir, "machine-*.json"))
	if err != nil {
		return nil
	}
	var all []Kept
	for _, path := range paths {
		if k, err := readKept(path); err == nil && k.Node == n {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b Kept) int { return a.PPN - b.PPN })
	return all
}

// From says where parameters come from that were kept.
func (k Kept) From() string {
	times := ""
	if n := len(k.Measured); n > 1 {
		times = fmt.Sprintf(" %d times, last", n)
	}
	if k.GPU != "" {
		return fmt.Sprintf("those of %s, measured%s on %s", k.GPU, times, k.Date())
	}
	return fmt.Sprintf("this machine's parameters, measured%s on %s with %d ranks", times, k.Date(), k.PPN)
}

// Date is when it was measured last, empty if never.
func (k Kept) Date() string {
	if len(k.Measured) == 0 {
		return ""
	}
	return k.Measured[len(k.Measured)-1].Date
}

// Costs are those of the start that is nearest to all others, by the sum of the distances of their logarithms: as one whole, for
// a machine may have two paces (virtual cores that share a cache today and not tomorrow), and costs of both
// together are those of no machine.
func (k Kept) Costs() Costs {
	if len(k.Measured) == 0 {
		return Costs{}
	}
	return slices.MinFunc(k.Measured, func(a, b Measured) int { return cmp.Compare(k.distance(a.Costs), k.distance(b.Costs)) }).Costs
}

// distance is how far costs are from all that were measured.
func (k Kept) distance(c Costs) (sum float64) {
	own := c.Values()
	for _, m := range k.Measured {
		for i, v := range m.Costs.Values() {
			if own[i] > 0 && v > 0 { // otherwise it was not measured, or told from others
				sum += math.Abs(math.Log(own[i] / v))
			}
		}
	}
	return sum
}

// Here returns s with what is kept of measurements of this machine, for the number of
// ranks on a node that is nearest to ppn; s itself where there is nothing, or where s
// has parameters of its own.
func (s *Selector) Here(n Node, ppn int) *Selector {
	dir, err := KeptFolder()
	if err != nil || !s.Assumes() || os.Getenv(EnvMeasure) == MeasureOff {
		return s
	}
	all := AllKept(dir, n)
	if len(all) == 0 {
		return s
	}
	k := slices.MinFunc(all, func(a, b Kept) int { return max(a.PPN-ppn, ppn-a.PPN) - max(b.PPN-ppn, ppn-b.PPN) })
	here := *s
	here.Model, here.From = k.Model(s.Model.On(host.Cores())), k.From()
	return &here
}

// HereOn is Here for buffers in GPUs' memory, too, with what is kept of such a GPU; the ranks of a node share GPUs as sharing says.
func (s *Selector) HereOn(n Node, ppn int, gpu Kept, sharing sim.GPU) *Selector {
	here := s.Here(n, ppn)
	dir, err := KeptFolder()
	if err != nil || !s.Assumes() || os.Getenv(EnvMeasure) == MeasureOff {
		return here
	}
	if found, err := gpu.Load(dir); err != nil || !found {
		return here
	}
	on := *here
	on.Model.GPU = sharing
	on.Model, on.From = gpu.Costs().On(on.Model), here.From+", "+gpu.From()
	return &on
}

// Model returns m with what was measured.
func (k Kept) Model(m sim.Model) sim.Model { return k.On(m, k.Costs()) }

// On returns m with costs of k's machine.
func (k Kept) On(m sim.Model, costs Costs) sim.Model {
	m = costs.On(m)
	if k.Node.Cache > 0 {
		m.Cache = float64(k.Node.Cache)
	}
	return m
}
