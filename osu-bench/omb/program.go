package omb

import (
	"fmt"
	"strings"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/schedule"
)

// kinds is a set of kinds of programs.
type kinds uint8

const (
	blocking kinds = 1 << iota // Reduce and Allreduce
	nonblocking
	latency
	bandwidth
	local
	barrier
	withRoot  // in addition: the collective has a root
	withPlace // in addition: the result may lie where the contribution does
)

const (
	all        = withData | barrier
	withData   = blocking | nonblocking | latency | bandwidth | local
	collective = blocking | nonblocking | barrier
	rooted     = withRoot
	placing    = withPlace
)

// Program is one of the programs.
type Program struct {
	Name  string // osu_reduce
	Title string // as in OMB's header: Reduce Latency
	kind  kinds
	verb  schedule.Collective
}

// Programs are all there are.
var Programs = []Program{
	{"osu_reduce", "Reduce Latency", blocking | withRoot | withPlace, schedule.Reduce},
	{"osu_bcast", "Broadcast Latency", blocking | withRoot, schedule.Bcast},
	{"osu_allreduce", "Allreduce Latency", blocking | withPlace, schedule.Allreduce},
	{"osu_allgather", "Allgather Latency", blocking | withPlace, schedule.Allgather},
	{"osu_reduce_scatter", "Reduce_scatter Latency", blocking, schedule.ReduceScatter},
	{"osu_alltoall", "All-to-All Personalized Exchange Latency", blocking, schedule.Alltoall},
	{"osu_gather", "Gather Latency", blocking | withRoot | withPlace, schedule.Gather},
	{"osu_scatter", "Scatter Latency", blocking | withRoot, schedule.Scatter},
	{"osu_barrier", "Barrier Latency", barrier, schedule.Allreduce}, // of a byte, as package collectives does it
	{"osu_ireduce", "Non-blocking Reduce Latency", nonblocking | withRoot | withPlace, schedule.Reduce},
	{"osu_ibcast", "Non-Blocking Broadcast Latency", nonblocking | withRoot, schedule.Bcast},
	{"osu_iallreduce", "Non-blocking Allreduce Latency", nonblocking | withPlace, schedule.Allreduce},
	{"osu_iallgather", "Non-blocking Allgather Latency", nonblocking | withPlace, schedule.Allgather},
	{"osu_ireduce_scatter", "Non-blocking Reduce_scatter Latency", nonblocking, schedule.ReduceScatter},
	{"osu_ialltoall", "Non-blocking All-to-All Latency", nonblocking, schedule.Alltoall},
	{"osu_igather", "Non-blocking Gather Latency", nonblocking | withRoot | withPlace, schedule.Gather},
	{"osu_iscatter", "Non-blocking Scatter Latency", nonblocking | withRoot, schedule.Scatter},
	{"osu_latency", "Latency", latency, 0},
	{"osu_bw", "Bandwidth", bandwidth, 0},
	{"osu_reduce_local", "Reduce Local Latency", local, 0},
}

// Find returns the program of a name.
func Find(name string) (Program, error) {
	for _, p := range Programs {
		if p.Name == name {
			return p, nil
		}
	}
	return Program{}, fmt.Errorf("unknown program %q", name)
}

// is reports whether p is of one of some kinds.
func (p Program) is(k kinds) bool { return p.kind&k != 0 }

// leastRanks and mostRanks bound the ranks that a program runs with; 0: any.
func (p Program) leastRanks() int {
	if p.is(local) {
		return 1
	}
	return 2
}

func (p Program) mostRanks() int {
	if p.is(latency | bandwidth) {
		return 2
	}
	return 0
}

// gathers reports whether every rank's message has a place of its own in the result.
func (p Program) gathers() bool { return p.is(collective) && p.verb.Gathers() }

// deals reports whether the root has a message for every rank.
func (p Program) deals() bool { return p.is(collective) && p.verb == schedule.Scatter }

// multiplies reports whether the size is that of one rank's message of many.
func (p Program) multiplies() bool { return p.gathers() || p.exchanges() || p.deals() }

// exchanges reports whether every rank has a message for every rank.
func (p Program) exchanges() bool { return p.is(collective) && p.verb == schedule.Alltoall }

// scatters reports whether every rank gets a part of the result.
func (p Program) scatters() bool { return p.is(collective) && p.verb == schedule.ReduceScatter }

// Version is that of OMB whose options and columns the programs have.
const Version = "7.4"

// title is the first line of OMB's output, which scripts look for.
func (p Program) title() string {
	return fmt.Sprintf("# OSU MPI %s Test v%s", p.Title, Version)
}

// help is what -h prints.
func (p Program) help() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: mpirun -np N %s [options]\n       %s --local N [options]\n\nOptions:\n", p.Name, p.Name)
	beyond := false
	for _, o := range optionsOf(p) {
		if o.short == 0 && !beyond {
			beyond = true
			fmt.Fprintf(&b, "\nNot in OMB:\n")
		}
		name := "      --" + o.long
		if o.short != 0 {
			name = fmt.Sprintf("  -%c, --%s", o.short, o.long)
		}
		if o.metavar != "" {
			name += " " + o.metavar
		}
		fmt.Fprintf(&b, "%-34s %s\n", name, o.help)
	}
	fmt.Fprintf(&b, "\n%s\n", p.algorithmHelp())
	return b.String()
}

func (p Program) algorithmHelp() string {
	switch {
	case p.is(local):
		return "Algorithms: best (what scaffe uses here), portable, avx2, and mpi (MPI_Reduce_local)."
	case p.is(latency | bandwidth):
		return "Algorithms: scaffe (its transport) and mpi (MPI_Isend and MPI_Irecv)."
	}
	return "Algorithms: tuned (what scaffe selects), mpi (the MPI library's own, called as OMB does), and\n" +
		"specs such as chain:8/binomial or chain,chunk=512K (levels: " + strings.Join(spec.Algorithms(), ", ") + ");\n" +
		"after another, candidates (all that scaffe tune would measure; csv and json)."
}
