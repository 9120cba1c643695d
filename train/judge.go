package train

import (
	"context"
	"sync"
	"time"

	"github.com/scaffe/scaffe/nbc"
)

// lateAfter, unless nil, is the judge's clock in tests.
var lateAfter func(time.Duration) <-chan time.Time

// judge decides, at the lowest server, who is in an iteration.
type judge struct {
	after    time.Duration
	timer    *time.Timer // of after, one for all iterations
	arrivals chan arrival
	ears     []ear // by worker; none for the one of this rank
	ctx      context.Context
	wait     sync.WaitGroup
}

// arrival says that a worker's passes of an iteration have ended.
type arrival struct {
	worker, iter int
	err          error
}

// ear waits for the word of a worker of another rank.
type ear struct {
	request *nbc.Request
	open    bool     // it is waited for
	wanted  chan any // asks for one more
}

func newJudge(ctx context.Context, after time.Duration, workers int) *judge {
	t := time.NewTimer(after)
	t.Stop()
	return &judge{after: after, timer: t, arrivals: make(chan arrival, 2*workers), ears: make([]ear, workers), ctx: ctx}
}

// listen waits, when it is asked to, for a worker's word, which r brings.
func (j *judge) listen(worker int, r *nbc.Request, word []int64) {
	e := ear{request: r, wanted: make(chan any, 1)}
	j.ears[worker] = e
	j.wait.Go(func() {
		for range e.wanted {
			err := r.Start()
			if err == nil {
				err = r.Wait(j.ctx)
			}
			j.arrivals <- arrival{worker, int(word[0]), err}
			if err != nil {
				return
			}
		}
	})
}

// decide waits for the median worker, and then for the others that began the iteration, but for no
// longer than after; verdicts says what became of each. Those who are behind do not count: at least
// half of the workers have been in the iteration before, so that the median one is among the others.
func (j *judge) decide(iter int, begins []bool, verdicts []uint8) error {
	expected := 0
	for i := range verdicts {
		verdicts[i] = behind
		if begins[i] {
			expected++
			j.ask(i)
		}
	}
	median := (len(verdicts) + 1) / 2
	var late <-chan time.Time
	defer j.timer.Stop()
	for arrived := 0; arrived < expected; {
		select {
		case a := <-j.arrivals:
			if a.err != nil {
				return a.err
			}
			j.ears[a.worker].open = false
			if a.iter != iter {
				verdicts[a.worker] = back
				continue
			}
			verdicts[a.worker] = in
			if arrived++; arrived == median && arrived < expected {
				late = j.clock()
			}
		case <-late:
			return nil
		case <-j.ctx.Done():
			return context.Cause(j.ctx)
		}
	}
	return nil
}

// clock says when who is not there is late.
func (j *judge) clock() <-chan time.Time {
	if lateAfter != nil {
		return lateAfter(j.after)
	}
	j.timer.Reset(j.after)
	return j.timer.C
}

// ask opens the ear for a worker's word.
func (j *judge) ask(worker int) {
	if e := &j.ears[worker]; e.wanted != nil && !e.open {
		e.open = true
		e.wanted <- nil
	}
}

// finish waits for the words that are still to come.
func (j *judge) finish(begins []bool) error {
	for i, b := range begins {
		for !b && j.ears[i].open {
			select {
			case a := <-j.arrivals:
				if a.err != nil {
					return a.err
				}
				j.ears[a.worker].open = false
			case <-j.ctx.Done():
				return context.Cause(j.ctx)
			}
		}
	}
	return nil
}

func (j *judge) close() {
	if j == nil {
		return
	}
	for _, e := range j.ears {
		if e.wanted != nil {
			close(e.wanted)
		}
	}
	j.wait.Wait()
	for _, e := range j.ears {
		if e.request != nil {
			e.request.Close()
		}
	}
}
