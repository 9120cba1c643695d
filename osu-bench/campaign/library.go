package campaign

import "fmt"

// variant is a setting of the MPI library under which it uses another of its own
// algorithms.
type variant struct {
	name   string
	mpirun []string
	env    []string
	above  int // bytes up to which it is the algorithm without segments
}

// variants returns those of a library for a collective. Few leaves only what is usually
// the best for large messages.
func variants(library, collective string, few bool) []variant {
	switch library {
	case "openmpi":
		return openMPI(collective, few)
	case "mpich":
		return mpich(collective, few)
	}
	return nil
}

// openMPI returns what component tuned of Open MPI 4 and 5 can be told: the number of an
// algorithm and, where it divides messages, the size of a segment.
func openMPI(collective string, few bool) (all []variant) {
	add := func(algorithm, segment int) {
		name := fmt.Sprintf("%s_algorithm=%d", collective, algorithm)
		args := []string{"--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_" + collective + "_algorithm", fmt.Sprint(algorithm)}
		if segment > 0 {
			name += fmt.Sprintf(",segmentsize=%d", segment)
			args = append(args, "--mca", "coll_tuned_"+collective+"_algorithm_segmentsize", fmt.Sprint(segment))
		}
		all = append(all, variant{name: name, mpirun: args, above: segment})
	}
	const segment = 64 << 10
	switch collective {
	case "reduce": // linear, chain, pipeline, binary, binomial, in-order binary, Rabenseifner
		add(3, segment)
		if few {
			return all
		}
		for _, algorithm := range []int{1, 5, 7} {
			add(algorithm, 0)
		}
		for _, algorithm := range []int{2, 4, 5} {
			add(algorithm, segment)
		}
	case "bcast": // linear, chain, pipeline, split binary, binary, binomial, knomial, scatter-allgather, and by a ring
		add(3, segment)
		if few {
			return all
		}
		for _, algorithm := range []int{1, 6, 8, 9} {
			add(algorithm, 0)
		}
		for _, algorithm := range []int{2, 4, 5, 6} {
			add(algorithm, segment)
		}
	case "allreduce": // linear, reduce and bcast, recursive doubling, ring, segmented ring, Rabenseifner
		add(4, 0)
		if few {
			return all
		}
		for _, algorithm := range []int{1, 2, 3, 6} {
			add(algorithm, 0)
		}
		add(5, segment)
	case "barrier": // linear, double ring, recursive doubling, Bruck, two processes, tree
		for _, algorithm := range []int{1, 3, 4, 6} {
			if !few || algorithm == 3 {
				add(algorithm, 0)
			}
		}
	}
	return all
}

// mpich returns the algorithms of MPICH 4, without the device's own.
func mpich(collective string, few bool) (all []variant) {
	of := map[string][]string{
		"reduce":    {"reduce_scatter_gather", "binomial"},
		"bcast":     {"scatter_ring_allgather", "binomial", "scatter_recursive_doubling_allgather"},
		"allreduce": {"reduce_scatter_allgather", "recursive_doubling"},
		"barrier":   {"dissemination"},
	}
	upper := map[string]string{"reduce": "REDUCE", "bcast": "BCAST", "allreduce": "ALLREDUCE", "barrier": "BARRIER"}
	for _, algorithm := range of[collective] {
		all = append(all, variant{
			name: algorithm,
			env:  []string{"MPIR_CVAR_DEVICE_COLLECTIVES=none", "MPIR_CVAR_" + upper[collective] + "_INTRA_ALGORITHM=" + algorithm, "MPIR_CVAR_COLLECTIVE_FALLBACK=silent"},
		})
		if few {
			break
		}
	}
	return all
}
