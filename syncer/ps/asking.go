package ps

import (
	"context"
	"fmt"
	"slices"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/syncer"
)

// Asking brings parameters back in three steps, as MXNet's KVStore does before P3 (section 4.2 of its paper):
//
//	server   pushes of a bucket ▶ updates ── notice ─▶              ┌── answer ─▶
//	                                                   ┐            │
//	worker                          notices of all its servers ─ question
//
// A server has notices for all workers when it has updated all that it holds of a bucket. A worker that has
// the notices of all servers of the bucket asks each for what that holds, and each answers as soon as it
// is asked, whoever else has asked. Pushes are New's, and so are the bits.
type Asking struct {
	team *syncer.Team
	with []*collectives.Comm // by rank: it and this one; nil where neither serves the other
}

// NewAsking connects the workers of a team, and servers, which are ranks of all. It is a collective.
func NewAsking(ctx context.Context, team *syncer.Team, servers []int) (*Asking, error) {
	with, err := twoByTwo(ctx, team, servers)
	return &Asking{team, with}, err
}

// Close gives back what NewAsking has made.
func (a *Asking) Close() {
	if a != nil {
		closeAll(a.with)
		a.with = nil
	}
}

// asker is the syncer of a bucket whose parameters are asked for.
type asker struct {
	syncer.Syncer     // pushes
	own           int // parts that this rank updates
	updated       int // of these, of the push under way

	notices  []*nbc.Request   // to other workers
	expected *nbc.Set         // the notices of other servers, then the questions of other workers
	servers  []asked          // by notice
	workers  [][]*nbc.Request // by question: the answer to it
	payload  nbc.Payload
	all      []*nbc.Request // all of these
}

// asked is another server, from a worker's side.
type asked struct {
	question *nbc.Request
	answer   []*nbc.Request
}

// New returns the syncer of a bucket as New does.
func (a *Asking) New(b syncer.Bucket, pairs []Pair, opts ...collectives.Option) (syncer.Syncer, error) {
	push, err := pushed(a.team, b, pairs, opts, func(Pair, *collectives.Comm, int, []collectives.Option) (*nbc.Request, error) { return nil, nil })
	if err != nil {
		return nil, err
	}
	s := &asker{Syncer: push, payload: push.Payload()}
	how := append(opts[:len(opts):len(opts)], collectives.With(spec.Spec{Levels: []spec.Level{linear}}))
	of := map[int][]Range{}
	for _, p := range pairs {
		of[p.Server] = append(of[p.Server], p.Range)
	}
	for _, p := range push.Parts() {
		if p.Updates {
			s.own++
		}
	}
	var notices, questions []*nbc.Request // that come here
	rank := a.team.All().Rank()
	for server := range a.with { // in an order in which both ranks of a communicator come to the same requests
		if of[server] == nil {
			continue
		}
		for _, worker := range a.team.Members() {
			other := server + worker - rank
			if server == worker || server != rank && worker != rank {
				continue
			}
			r := &between{asker: s, comm: a.with[other], mine: rank > other, serves: server == rank, how: how}
			notice := r.one("notice of "+b.Name, server == rank)
			question := r.one("the question for "+b.Name, worker == rank)
			var answer []*nbc.Request
			for _, p := range of[server] {
				answer = append(answer, r.request(b.Called(p.Off), part(b.Data, p), server == rank, b.Pulls...))
			}
			if r.err != nil {
				s.Close()
				return nil, fmt.Errorf("bucket %q: what rank %d asks of its server, rank %d: %w", b.Name, worker, server, r.err)
			}
			if server == rank {
				s.notices, questions, s.workers = append(s.notices, notice), append(questions, question), append(s.workers, answer)
			} else {
				notices, s.servers = append(notices, notice), append(s.servers, asked{question, answer})
			}
		}
	}
	s.expected = nbc.NewSet(slices.Concat(notices, questions)...)
	return s, nil
}

// between makes requests between two ranks, until one cannot be made.
type between struct {
	*asker
	comm   *collectives.Comm
	mine   bool // this rank is the higher one of the two
	serves bool
	how    []collectives.Option
	err    error
}

// request moves b from one to the other; about says what that is.
func (r *between) request(about string, b mem.Buffer, sends bool, more ...collectives.Option) *nbc.Request {
	if r.err != nil {
		return nil
	}
	root, server := 0, 0
	if r.mine == sends {
		root = 1
	}
	if r.mine == r.serves {
		server = 1
	}
	var q *nbc.Request
	how := append(slices.Concat(r.how, more), collectives.Served(about, server))
	if q, r.err = r.comm.BcastInit(b, mem.Float32, root, how...); r.err == nil {
		r.all, r.payload = append(r.all, q), r.payload.Add(q.Payload())
	}
	return q
}

// one moves a word that says nothing but that it has come.
func (r *between) one(about string, sends bool) *nbc.Request {
	return r.request(about, mem.Of(make([]float32, 1)), sends)
}

// Push starts all pushes, and expects what follows them.
func (s *asker) Push() error {
	s.updated = 0
	if err := s.Syncer.Push(); err != nil {
		return err
	}
	return s.expected.Start()
}

// Pull says that a part is updated. With the last of this rank's, all workers get notice.
func (s *asker) Pull(part int) error {
	if !s.Parts()[part].Updates {
		return nil
	}
	if s.updated++; s.updated < s.own {
		return nil
	}
	return startAll(s.notices)
}

// Pulled answers and asks until everybody has what it asked for.
func (s *asker) Pulled(ctx context.Context) error {
	left := len(s.servers) // who have given no notice
	for range len(s.servers) + len(s.workers) {
		i, err := s.expected.Next(ctx)
		if err != nil {
			return err
		}
		if i >= len(s.servers) {
			if err := startAll(s.workers[i-len(s.servers)]); err != nil {
				return err
			}
			continue
		}
		if left--; left > 0 {
			continue
		}
		for _, server := range s.servers {
			if err := startAll(server.answer); err != nil {
				return err
			}
			if err := server.question.Start(); err != nil {
				return err
			}
		}
	}
	if err := waitAll(ctx, s.notices); err != nil {
		return err
	}
	for _, server := range s.servers {
		if err := server.question.Wait(ctx); err != nil {
			return err
		}
		if err := waitAll(ctx, server.answer); err != nil {
			return err
		}
	}
	for _, answer := range s.workers {
		if err := waitAll(ctx, answer); err != nil {
			return err
		}
	}
	return nil
}

func startAll(all []*nbc.Request) error {
	for _, r := range all {
		if err := r.Start(); err != nil {
			return err
		}
	}
	return nil
}

func waitAll(ctx context.Context, all []*nbc.Request) error {
	for _, r := range all {
		if err := r.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Payload is that of pushes, notices, questions and answers.
func (s *asker) Payload() nbc.Payload { return s.payload }

// Close closes all requests.
func (s *asker) Close() {
	s.Syncer.Close()
	for _, r := range s.all {
		r.Close()
	}
}
