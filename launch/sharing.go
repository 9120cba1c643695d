package launch

import (
	"fmt"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/internal/version"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/nbc/lending"
	"github.com/scaffe/scaffe/schedule/sim"
)

// Joined is how ranks with a GPU each are joined, equal on all of them.
type Joined struct {
	Paths   lending.Paths
	Warning string // for people
	// Devices is how many GPUs the ranks of a node share, the fewest where nodes differ; 0: each has its own.
	Devices int
	// Turns says that several processes share a GPU and no MPS server has it, so that their kernels take turns.
	Turns bool
	// Lends is which messages within nodes are read where they lie (sim.GPU).
	Lends int
}

// sharing says how the ranks share GPUs.
func sharing(all []gpuFacts) (j Joined) {
	gpus, ranks := map[int]map[string]bool{}, map[int]int{}
	holders := map[string]string{} // processes, by GPU
	for _, f := range all {
		if gpus[f.Node] == nil {
			gpus[f.Node] = map[string]bool{}
		}
		gpus[f.Node][f.UUID] = true
		ranks[f.Node]++
		if other, shared := holders[f.UUID]; shared && other != f.Process && !f.MPS {
			j.Turns = true
		}
		holders[f.UUID] = f.Process
	}
	for node, of := range gpus {
		if n := len(of); n < ranks[node] && (j.Devices == 0 || n < j.Devices) {
			j.Devices = n
		}
	}
	return j
}

// lends says which messages within nodes are read where they lie by these paths.
func lends(all []gpuFacts, paths lending.Paths) int {
	how := sim.LendsAll
	for i := range paths {
		for j := range i {
			switch {
			case all[i].Node != all[j].Node || paths[i][j].Lends():
			case all[i].UUID == all[j].UUID:
				return sim.LendsNone
			default:
				how = sim.LendsOwn
			}
		}
	}
	return how
}

// KeptGPU returns what measurements of a GPU of this machine are kept under. How ranks are started is no part of it.
func KeptGPU(g cuda.GPU) selection.Kept {
	driver, err := cuda.DriverVersion()
	if err != nil {
		driver = err.Error()
	}
	v := version.Get()
	return selection.Kept{
		Node: selection.Node{Machine: selection.Machine{Host: Machine(0).Host}, How: fmt.Sprintf("%s %s", v.Version, v.Revision)},
		GPU:  fmt.Sprintf("%s, %d MiB, sm_%d, driver for CUDA %s", g.Name, g.Memory>>20, g.SM, driver),
	}
}

// GPUsHere returns what measurements of this machine's first GPU are kept under, and how ppn processes would share its GPUs as far as the driver tells; none where
// there is no GPU.
func GPUsHere(ppn int) (kept selection.Kept, sharing sim.GPU, found bool) {
	all, err := cuda.GPUs()
	if err != nil || len(all) == 0 {
		return kept, sim.GPU{}, false
	}
	sharing.Lends = sim.LendsAll
	for i := range all {
		for j := range all {
			if can, err := cuda.CanReach(i, j); i != j && j < ppn && i < ppn && (err != nil || !can) {
				sharing.Lends = sim.LendsOwn
			}
		}
	}
	if len(all) < ppn {
		sharing.Devices = float64(len(all))
		if mps, _ := cuda.MPS(0); !mps {
			sharing.Turns = 1
		}
	}
	return KeptGPU(all[0]), sharing, true
}
