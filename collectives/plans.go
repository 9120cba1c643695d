package collectives

import (
	"container/list"
	"fmt"
	"sync"

	"golang.org/x/sync/singleflight"

	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
)

// What a communicator keeps of what it has worked out. An op takes about 130 bytes
// with its dependencies, so that keptOps are some 130 MB; what a training uses
// again and again is far less.
const (
	keptOps     = 1 << 20
	keptChoices = 1 << 12
)

// planKey is all that a plan is a function of, within a communicator.
type planKey struct {
	collective            schedule.Collective
	root, count, elemSize int
	scaled, apart         bool
	counts                string // see countsKey
	text                  string // stands for the spec, or for those of the parts
}

// plans keeps the compiled schedules of a communicator that were used last.
type plans struct {
	nodes    []int // by rank of the communicator; does not change
	mu       sync.Mutex
	kept     lru[planKey, *nbc.Plan]
	building singleflight.Group
}

func newPlans(ops int) *plans { return &plans{kept: lru[planKey, *nbc.Plan]{room: ops}} }

// get returns the plan of key, built where it is not kept. Callers that need
// the same plan at once wait for one to build it; others do not wait.
func (p *plans) get(key planKey, build func() (*schedule.Schedule, error)) (*nbc.Plan, error) {
	find := func() (*nbc.Plan, bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.kept.get(key)
	}
	if plan, found := find(); found {
		return plan, nil
	}
	built, err, _ := p.building.Do(fmt.Sprint(key), func() (any, error) {
		if plan, found := find(); found { // built since we looked
			return plan, nil
		}
		s, err := build()
		if err != nil {
			return nil, err
		}
		plan, err := nbc.CompileOn(s, p.nodes)
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.kept.put(key, plan, 1+len(s.Ops))
		return plan, nil
	})
	if err != nil {
		return nil, err
	}
	return built.(*nbc.Plan), nil
}

// clear drops all plans.
func (p *plans) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept.clear()
}

// lru keeps the values that were used last, as many as there is room for: the
// sum of their weights is at most room. A value heavier than that is kept alone.
type lru[K comparable, V any] struct {
	room    int
	weight  int
	entries map[K]*list.Element
	order   list.List // of *entry[K, V], the one used last in front
}

type entry[K comparable, V any] struct {
	key    K
	value  V
	weight int
}

func (l *lru[K, V]) get(key K) (value V, found bool) {
	e := l.entries[key]
	if e == nil {
		return value, false
	}
	l.order.MoveToFront(e)
	return e.Value.(*entry[K, V]).value, true
}

// put keeps a value that is not kept yet.
func (l *lru[K, V]) put(key K, value V, weight int) {
	if l.entries == nil {
		l.entries = map[K]*list.Element{}
	}
	l.entries[key] = l.order.PushFront(&entry[K, V]{key, value, weight})
	l.weight += weight
	for l.weight > l.room && l.order.Len() > 1 {
		l.drop(l.order.Back())
	}
}

func (l *lru[K, V]) drop(e *list.Element) {
	old := l.order.Remove(e).(*entry[K, V])
	delete(l.entries, old.key)
	l.weight -= old.weight
}

// clear drops everything.
func (l *lru[K, V]) clear() { *l = lru[K, V]{room: l.room} }
