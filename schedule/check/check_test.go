package check_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/scaffe/scaffe/binomial"
	"github.com/scaffe/scaffe/chain"
	"github.com/scaffe/scaffe/linear"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check"
)

// parseAll reads the schedules of all ranks, one after the other.
func parseAll(text string) ([]*schedule.Schedule, error) {
	var all []*schedule.Schedule
	for _, one := range strings.Split("\n"+text, "\nrank ")[1:] {
		s, err := schedule.Parse("rank " + one)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// allKinds returns every kind there is.
func allKinds() (kinds []check.Kind) {
	for k := check.Kind(0); !strings.HasPrefix(k.Error(), "check.Kind("); k++ {
		kinds = append(kinds, k)
	}
	return kinds
}

func TestBrokenSchedulesAreRefused(t *testing.T) {
	seen := map[check.Kind]bool{}
	messages := map[string]bool{}
	datadriven.RunTest(t, "testdata/broken", func(t *testing.T, d *datadriven.TestData) string {
		all, err := parseAll(d.Input)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		root := 0
		d.MaybeScanArgs(t, "root", &root)
		c, err := schedule.ParseCollective(d.Cmd)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		var counts []int
		for _, arg := range d.CmdArgs {
			for i := range arg.Vals {
				if arg.Key == "counts" {
					var n int
					arg.Scan(t, i, &n)
					counts = append(counts, n)
				}
			}
		}
		err = check.Prove(c, all, root, counts...)
		if err == nil {
			steps, err := check.Steps(all)
			if err != nil {
				d.Fatalf(t, "proved, but: %v", err)
			}
			return fmt.Sprintf("right, in %d steps\n", steps)
		}
		var e *check.Error
		if !errors.As(err, &e) || !errors.Is(err, e.Kind) {
			d.Fatalf(t, "not a check.Error of its own kind: %#v", err)
		}
		if e.Op >= 0 && e.Text != all[e.Rank].Ops[e.Op].String() {
			d.Fatalf(t, "op %d of rank %d is not %q", e.Op, e.Rank, e.Text)
		}
		if messages[err.Error()] {
			d.Fatalf(t, "the message of another case: %v", err)
		}
		seen[e.Kind], messages[err.Error()] = true, true
		return err.Error() + "\n"
	})
	for _, k := range allKinds() {
		if !seen[k] {
			t.Errorf("no broken schedule shows %q", k)
		}
	}
}

// What the text form cannot say.
func TestMalformedInMemory(t *testing.T) {
	good := func() []*schedule.Schedule {
		p := schedule.Params{Size: 3, Count: 6, Chunk: 2}
		return schedule.Algorithm{Reduce: chain.Reduce, Bcast: chain.Bcast}.Build(schedule.Reduce, p)
	}
	if err := check.Prove(schedule.Reduce, good(), 0); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spoil func(all []*schedule.Schedule) []*schedule.Schedule
		want  check.Kind
	}{
		"none":            {func([]*schedule.Schedule) []*schedule.Schedule { return nil }, check.Malformed},
		"nil":             {func(a []*schedule.Schedule) []*schedule.Schedule { a[1] = nil; return a }, check.Malformed},
		"kind":            {func(a []*schedule.Schedule) []*schedule.Schedule { a[1].Ops[0].Kind = 9; return a }, check.Malformed},
		"negative count":  {func(a []*schedule.Schedule) []*schedule.Schedule { a[0].Count = -1; return a[:1] }, check.Malformed},
		"no such buffer":  {func(a []*schedule.Schedule) []*schedule.Schedule { a[1].Ops[0].Src.Buf = 3; return a }, check.OutOfBounds},
		"negative offset": {func(a []*schedule.Schedule) []*schedule.Schedule { a[1].Ops[0].Src.Off = -1; return a }, check.OutOfBounds},
		"negative length": {func(a []*schedule.Schedule) []*schedule.Schedule { a[2].Ops[0].Src.Len = -1; return a }, check.OutOfBounds},
		"overflow": {func(a []*schedule.Schedule) []*schedule.Schedule {
			a[2].Ops[0].Src.Off, a[2].Ops[0].Src.Len = 1, 1<<63-1
			return a
		}, check.OutOfBounds},
		"negative peer":       {func(a []*schedule.Schedule) []*schedule.Schedule { a[1].Ops[0].Peer = -1; return a }, check.WrongPeer},
		"negative dependency": {func(a []*schedule.Schedule) []*schedule.Schedule { a[1].Ops[1].Deps = []int{-1}; return a }, check.BadDependency},
		"waits for itself":    {func(a []*schedule.Schedule) []*schedule.Schedule { a[1].Ops[1].Deps = []int{1}; return a }, check.BadDependency},
		"negative message":    {func(a []*schedule.Schedule) []*schedule.Schedule { a[1].Ops[1].Msg = -1; return a }, check.MessageGap},
	} {
		all := good()
		if name == "negative count" {
			all[0].Size = 1
		}
		all = c.spoil(all)
		if err := check.Prove(schedule.Reduce, all, 0); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if _, err := check.Steps(all); !errors.Is(err, c.want) {
			t.Errorf("%s: Steps: %v, want %v", name, err, c.want)
		}
	}
}

// Every single dependency of a right schedule is needed by something that the
// proof looks at: without it there is a race.
func TestEveryDependencyIsNeeded(t *testing.T) {
	p := schedule.Params{Size: 5, Root: 3, Count: 23, Chunk: 3}
	family := schedule.Algorithm{Reduce: chain.Reduce, Bcast: chain.Bcast, Alltoall: linear.Alltoall, Gather: binomial.Gather, Scatter: binomial.Scatter}
	for _, v := range schedule.Collectives {
		all := family.Build(v, p)
		for _, s := range all {
			for i := range s.Ops {
				deps := s.Ops[i].Deps
				for k := range deps {
					s.Ops[i].Deps = append(append([]int(nil), deps[:k]...), deps[k+1:]...)
					if err := check.Prove(v, all, p.Root); !errors.Is(err, check.Race) {
						t.Fatalf("%s without the dependency of op %d of rank %d on %d: %v", v, i, s.Rank, deps[k], err)
					}
				}
				s.Ops[i].Deps = deps
			}
		}
	}
}

func TestStepsOfADeadlock(t *testing.T) {
	all, err := parseAll("rank 0 of 2 count 4 scratch 4\n" +
		"0: send in[0:4] to 1 #0\n1: recv scratch[0:4] from 1 #0 after 0\n" +
		"rank 1 of 2 count 4 scratch 4\n" +
		"0: send in[0:4] to 0 #0\n1: recv scratch[0:4] from 0 #0 after 0\n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := check.Steps(all); !errors.Is(err, check.Deadlock) {
		t.Errorf("%v, want a deadlock", err)
	}
}
