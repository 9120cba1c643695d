// Package ps is the scheme "ps", Poseidon's parameter server (section 4.1): the
// parameters of a bucket lie in KV pairs, each of which has a server among the ranks.
//
//	push   of a pair: a reduction of its gradients to its server
//	pull   of a pair: a broadcast of its parameters by its server
//
// Both are collectives like all others. A server that has the sums of all workers for
// a pair, whenever that is, updates it and sends it out, whatever becomes of other pairs.
//
// Contributions are added in the order of ranks, whoever serves (package linear); where
// nodes have several ranks, those of each node first (section 5.1, on several GPUs), so
// that one message a node and pair passes the network. So parameters have the same bits
// for any servers and pairs, and with one rank a node, or one node, those of the scheme
// reduce by the algorithm linear.
//
//	s, err := ps.New(syncer.Everyone(comm), bucket, []ps.Pair{{Range: ps.Range{Len: 1024}, Server: 3}, …})
//
// Links move them between each worker and the servers alone, for workers that are some iterations apart. Asking brings
// parameters back as MXNet's KVStore does: when a worker asks for them.
//
// Which pairs there are, and whose, is package coordinator's to say.
package ps

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/syncer"
)

// Range is elements of a bucket.
type Range = schedule.Range

// Pair is a KV pair: elements of the bucket, and the rank that serves them.
type Pair struct {
	Range
	Server int
}

// linear is how all pairs move.
var linear = spec.Level{Algorithm: "linear"}

// Spec returns how pairs are pushed and pulled by ranks that are placed so.
func Spec(l spec.Layout) spec.Spec {
	if l.Nodes > 1 && l.Ranks > l.Nodes {
		node := linear
		node.Size = spec.Node
		return spec.Spec{Levels: []spec.Level{node, linear}}
	}
	return spec.Spec{Levels: []spec.Level{linear}}
}

// New returns the syncer of a bucket. pairs are all of it, ascending; each is a part,
// which its server updates. A rank that only serves has no other parts than its own. Every
// rank of the team must make the same syncers in the same order, and their parameters must
// be equal at the start.
func New(team *syncer.Team, b syncer.Bucket, pairs []Pair, opts ...collectives.Option) (syncer.Syncer, error) {
	return pushed(team, b, pairs, opts, func(p Pair, comm *collectives.Comm, root int, how []collectives.Option) (*nbc.Request, error) {
		return comm.BcastInit(part(b.Data, p.Range), mem.Float32, root, slices.Concat(how, b.Pulls)...)
	})
}

// pushed returns the syncer of a bucket whose pairs are reduced to their servers, and come back by what pull makes: nil, if
// that is not a request of the pair's own.
func pushed(team *syncer.Team, b syncer.Bucket, pairs []Pair, opts []collectives.Option, pull func(p Pair, comm *collectives.Comm, root int, how []collectives.Option) (*nbc.Request, error)) (syncer.Syncer, error) {
	var s syncer.Requests
	var servers []int // by part
	rank := team.All().Rank()
	end := 0
	for _, p := range pairs {
		if p.Off != end || p.Len <= 0 || mem.Float32.Bytes(p.End()) > b.Diff.Len() {
			s.Close()
			return nil, fmt.Errorf("bucket %q: KV pair %v, where one is due that begins at %d and ends within %d bytes", b.Name, p.Range, end, b.Diff.Len())
		}
		end = p.End()
		comm, root, err := team.Between(p.Server)
		if err == nil && comm == nil { // between others
			continue
		}
		var up, down *nbc.Request
		if err == nil {
			in := part(b.Diff, p.Range)
			if !team.Works(rank) {
				in = team.Nothing(p.Len)
			}
			how := append(opts[:len(opts):len(opts)], collectives.With(Spec(comm.Layout())), collectives.Served(b.Called(p.Off), root))
			if up, err = comm.ReduceInit(in, part(b.Diff, p.Range), mem.Float32, mem.Sum, root, how...); err == nil {
				down, err = pull(p, comm, root, how)
			}
		}
		s.Add(syncer.Part{Range: p.Range, Updates: rank == p.Server}, up, down)
		servers = append(servers, p.Server)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("bucket %q: KV pair %v at rank %d: %w", b.Name, p.Range, p.Server, err)
		}
	}
	if mem.Float32.Bytes(end) != b.Diff.Len() {
		s.Close()
		return nil, fmt.Errorf("bucket %q: its KV pairs end at element %d, it has %d bytes", b.Name, end, b.Diff.Len())
	}
	return s.Syncer(inTurn(servers, place(team))), nil
}

// part is a range of a bucket's buffer.
func part(of mem.Buffer, r Range) mem.Buffer {
	return of.Slice(mem.Float32.Bytes(r.Off), mem.Float32.Bytes(r.Len))
}

// place is where this rank begins among the servers: the number of the first worker on its node.
func place(team *syncer.Team) int {
	nodes := team.All().Nodes()
	return max(0, slices.IndexFunc(team.Members(), func(r int) bool { return nodes[r] == nodes[team.All().Rank()] }))
}

// inTurn returns the order in which a rank pushes what has these servers: to one after the other, from
// the one after the rank's own place on, so that not all workers begin with the same server, whose
// port would be what all wait for. nil is the order of the parts.
func inTurn(servers []int, place int) []int {
	distinct := slices.Compact(slices.Sorted(slices.Values(servers)))
	if len(distinct) < 2 {
		return nil
	}
	turns := make([]int, len(servers)) // the most significant: how many of the server's come before
	seen := map[int]int{}
	for i, s := range servers {
		number, _ := slices.BinarySearch(distinct, s)
		after := (number + 2*len(distinct) - place%len(distinct) - 1) % len(distinct)
		turns[i] = seen[s]*len(distinct) + after
		seen[s]++
	}
	order := make([]int, len(servers))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(turns[i], turns[j]) })
	return order
}
