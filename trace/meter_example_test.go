package trace_test

import (
	"fmt"
	"time"

	"github.com/scaffe/scaffe/trace"
)

// Every event goes to a recorder, for the timeline, and to a meter, for what is
// shown while training runs.
func ExampleMeter() {
	rec, meter := trace.New(0, trace.Options{}), &trace.Meter{}
	sink := trace.Sinks{rec, meter}
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	sink.Add(trace.Event{Kind: trace.Backward, Name: "ip1", Begin: at(0), End: at(30)})
	sink.Add(trace.Event{Kind: trace.WaitPush, Name: "ip2", Begin: at(30), End: at(40)})
	sink.Add(trace.Event{Kind: trace.Push, Name: "ip2", Begin: at(0), End: at(40)})

	t := meter.Totals()
	kept, _, _ := rec.Counts()
	fmt.Printf("%v in flight, %v of it exposed, %.0f %% hidden; %d events kept\n", t.Communication, t.Exposed(), 100*t.Hidden(), kept)
	// Output:
	// 40ms in flight, 10ms of it exposed, 75 % hidden; 3 events kept
}
