package collectives

import (
	"context"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
)

// recent is the request of the last blocking call. Programs make the same call
// again and again; then it is not prepared anew but for its number, which
// every rank counts whether it has kept a request or not.
type recent struct {
	key     recentKey
	request *nbc.Request // nil: none, or in use
}

// recentKey is all of a call without options.
type recentKey struct {
	collective schedule.Collective
	root       int
	send, recv mem.Buffer
	dt         mem.Datatype
	op         mem.Op
}

// run does a blocking call.
func (c *Comm) run(ctx context.Context, k call, opts []Option) error {
	if len(opts) > 0 {
		r, err := c.init(k, append(opts[:len(opts):len(opts)], blocking))
		if err != nil {
			return err
		}
		defer r.Close()
		return r.Run(ctx)
	}
	key := recentKey{k.collective, k.root, k.send, k.recv, k.dt, k.op}
	r, err := c.takeRecent(key)
	if err != nil {
		return err
	}
	if r == nil {
		k.blocking = true
		if r, err = c.init(k, nil); err != nil {
			return err
		}
	}
	if err := r.Run(ctx); err != nil {
		r.Close()
		return err
	}
	c.keepRecent(key, r)
	return nil
}

// blocking marks a call whose caller waits at once.
func blocking(k *call) { k.blocking = true }

// takeRecent returns the kept request if it is of the same call, numbered anew.
func (c *Comm) takeRecent(key recentKey) (*nbc.Request, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.recent.request
	if r == nil || c.recent.key != key {
		return nil, nil
	}
	c.recent.request = nil
	if err := r.Renumber(c.countLocked(false)); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// keepRecent keeps r for the next call, instead of the one kept before.
func (c *Comm) keepRecent(key recentKey, r *nbc.Request) {
	c.mu.Lock()
	old := c.recent.request
	if c.closed {
		old = r
	} else {
		c.recent = recent{key, r}
	}
	c.mu.Unlock()
	if old != nil {
		old.Close()
	}
}
