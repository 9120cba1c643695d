package nbc

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

// steps are the words of the golden files.
var steps = map[step]string{stepBegin: "begin", stepCombine: "combine", stepDivide: "divide", stepRelease: "release", stepEnd: "end"}

// TestExecutor drives executors by hand, as testdata/executor writes it down:
//
//	request NAME [divide]   the input is its schedule
//	request NAME folds      … of ranks of a node each, with a device that folds
//	request NAME inplace    … whose In is its Out
//	request NAME relays     … of ranks of one node, which stores messages where those want them to whom it passes them on
//	admit NAME...           start executions
//	begun NAME done=(OP...) lent=(OP...)   … one that its caller has begun alone
//	received NAME OP...     the transport has ended these ops, in this order
//	received NAME OP early  … before those to whom it is passed on wait for it
//	combined NAME OP...     the device has
//	idle                    nothing else is to be done
//	fail
//
// Each prints what is asked for then.
func TestExecutor(t *testing.T) {
	var x executor
	requests, names := map[string]*Request{}, map[*Request]string{}
	datadriven.RunTest(t, "testdata/executor", func(t *testing.T, d *datadriven.TestData) string {
		var out strings.Builder
		switch d.Cmd {
		case "new":
			x = executor{}
		case "request":
			s, err := schedule.Parse(d.Input)
			if err != nil {
				return err.Error()
			}
			var nodes []int
			if d.HasArg("folds") {
				x.folds = true
				for r := range s.Size {
					nodes = append(nodes, r)
				}
			}
			if d.HasArg("relays") {
				x.folds, nodes = true, make([]int, s.Size)
			}
			plan, err := CompileOn(s, nodes)
			if err != nil {
				return err.Error()
			}
			name := d.CmdArgs[0].Key
			r := &Request{plan: plan, bind: &Binding{}}
			if d.HasArg("divide") {
				r.bind.Divide = 2
			}
			r.inPlace, r.relays = d.HasArg("inplace"), d.HasArg("relays") && plan.relayed > 0
			requests[name], names[r] = r, name
			return ""
		case "admit":
			for _, a := range d.CmdArgs {
				x.admit(requests[a.Key], nil, nil)
			}
		case "begun":
			var done []int32
			var lent []Token
			for _, a := range d.CmdArgs[1:] {
				for _, v := range a.Vals {
					i, err := strconv.ParseInt(v, 10, 32)
					if err != nil {
						return err.Error()
					}
					if a.Key == "lent" {
						lent = append(lent, Token(i))
					} else {
						done = append(done, int32(i))
					}
				}
			}
			x.admit(requests[d.CmdArgs[0].Key], done, lent)
		case "received", "combined":
			r := requests[d.CmdArgs[0].Key]
			x.awaited = func(*Request, int32) bool { return !d.HasArg("early") }
			for _, a := range d.CmdArgs[1:] {
				if a.Key == "early" {
					continue
				}
				var i int32
				if _, err := fmt.Sscan(a.Key, &i); err != nil {
					return err.Error()
				}
				found, op := x.lookup(r.token(i))
				switch {
				case found == nil:
					out.WriteString("ignored\n")
				case d.Cmd == "received":
					x.received(found, op, mem.Buffer{})
				default:
					x.combined(found, op)
				}
			}
		case "idle":
			if !x.partly(onHost) {
				out.WriteString("nothing\n")
			}
		case "fail":
			for _, r := range x.fail() {
				fmt.Fprintf(&out, "fails %s\n", names[r])
			}
		default:
			t.Fatalf("unknown command %s", d.Cmd)
		}
		for {
			a, ok := x.next(true)
			if !ok {
				break
			}
			fmt.Fprintf(&out, "%s %s", steps[a.step], names[a.r])
			if a.step != stepEnd && a.step != stepDivide {
				fmt.Fprintf(&out, " %d: %s", a.op, &a.r.plan.schedule.Ops[a.op])
			}
			if a.step == stepBegin && a.r.plan.schedule.Ops[a.op].Kind == schedule.Add {
				x.received(a.r, a.op, mem.Buffer{}) // as the engine does
			}
			if a.step == stepCombine && a.last != a.op {
				fmt.Fprintf(&out, ", to %d", a.last)
			}
			out.WriteString("\n")
		}
		fmt.Fprintf(&out, "under way: %d, slots: %d", x.inUse, len(x.active))
		return out.String()
	})
}

// TestWaitingRequestsCostNothing: what an executor does for a request does not
// grow with the number of those that wait.
func TestWaitingRequestsCostNothing(t *testing.T) {
	s, err := schedule.Parse("rank 0 of 2 count 4 scratch 0\n0: recv out[0:4] from 1 #0\n")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	const standing = 10_000
	var x executor
	for range standing {
		x.admit(&Request{plan: plan, bind: &Binding{}}, nil, nil)
	}
	for n := 0; ; n++ {
		if _, ok := x.next(true); !ok {
			if n != standing {
				t.Fatalf("%d ops begin, not %d", n, standing)
			}
			break
		}
	}
	busy := &Request{plan: plan, bind: &Binding{}}
	for range 10 {
		x.admit(busy, nil, nil)
		if x.ready.one != busy || !x.ready.rest.empty() {
			t.Fatalf("%d more requests are looked at to begin one op", len(x.ready.rest.items))
		}
		a, ok := x.next(true)
		if !ok || a.r != busy || busy.slot != standing {
			t.Fatalf("asks for %+v in slot %d", a, busy.slot)
		}
		x.received(busy, 0, mem.Buffer{})
		if a, ok = x.next(true); !ok || a.step != stepEnd || x.inUse != standing {
			t.Fatalf("asks for %+v with %d under way", a, x.inUse)
		}
	}
}
