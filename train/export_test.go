package train

import "time"

// LateAfter takes the place of the clock that says who is late (Consistency.Drop); what it returns
// brings the other one back.
func LateAfter(clock func(time.Duration) <-chan time.Time) (restore func()) {
	lateAfter = clock
	return func() { lateAfter = time.After }
}
