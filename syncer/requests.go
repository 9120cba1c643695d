package syncer

import (
	"context"
	"time"

	"github.com/scaffe/scaffe/nbc"
)

// Requests are those of a bucket's parts, of which each is pushed and pulled by itself: added one by one, then
// the bucket's Syncer.
type Requests struct {
	parts   []Part
	pushes  []*nbc.Request
	pulls   []*nbc.Request // by part; nil: there is nothing to pull
	push    *nbc.Set       // in the order of their starts
	order   []int          // the part of each; nil: that of the parts
	payload nbc.Payload

	queues     Queues    // nil: what is pushed and pulled is there
	gradients  nbc.Event // of the last push
	parameters []nbc.Event
}

// Add adds a part and its requests, either of which may be nil where it could not be made;
// pull is nil, too, where there is nothing to pull.
func (r *Requests) Add(p Part, push, pull *nbc.Request) {
	r.parts, r.pushes, r.pulls = append(r.parts, p), append(r.pushes, push), append(r.pulls, pull)
	for _, q := range []*nbc.Request{push, pull} {
		if q != nil {
			r.payload = r.payload.Add(q.Payload())
		}
	}
}

// Syncer returns what moves the parts, all of which have their requests. order, unless nil, is that
// in which their pushes start.
func (r *Requests) Syncer(order []int) Syncer {
	pushes := r.pushes
	if order != nil {
		pushes = make([]*nbc.Request, len(order))
		for k, i := range order {
			pushes[k] = r.pushes[i]
		}
	}
	r.push, r.order = nbc.NewSet(pushes...), order
	return r
}

// Parts is as in Syncer, and so are the others.
func (r *Requests) Parts() []Part { return r.parts }

// Push starts all pushes.
func (r *Requests) Push() (err error) {
	if r.queues == nil {
		return r.push.Start()
	}
	if r.gradients, err = r.queues.Gradients(r.gradients); err != nil {
		return err
	}
	return r.push.StartAfter(r.gradients)
}

// Began returns when the pushes began, where that was after the GPU had come to an event: before it they waited for what is computed.
// It is called when all have ended.
func (r *Requests) Began() time.Time { return r.push.Began() }

// Pushed waits for the push of one more part.
func (r *Requests) Pushed(ctx context.Context) (int, error) {
	i, err := r.push.Next(ctx)
	if r.order != nil {
		i = r.order[i]
	}
	return i, err
}

// Pull starts the pull of a part.
func (r *Requests) Pull(part int) error {
	if r.pulls[part] == nil {
		return nil
	}
	if r.queues == nil {
		return r.pulls[part].Start()
	}
	if r.parameters == nil {
		r.parameters = make([]nbc.Event, len(r.parts))
	}
	var err error
	if r.parameters[part], err = r.queues.Parameters(r.parameters[part]); err != nil {
		return err
	}
	return r.pulls[part].StartAfter(r.parameters[part])
}

// Pulled waits for all pulls.
func (r *Requests) Pulled(ctx context.Context) error {
	for _, q := range r.pulls {
		if q == nil {
			continue
		}
		if err := q.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Payload is that of all parts.
func (r *Requests) Payload() nbc.Payload { return r.payload }

// Close closes the requests.
func (r *Requests) Close() {
	for i := range r.parts {
		for _, q := range []*nbc.Request{r.pushes[i], r.pulls[i]} {
			if q != nil {
				q.Close()
			}
		}
	}
}
