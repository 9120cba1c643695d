package draw_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/cockroachdb/datadriven" // its flag -rewrite

	"github.com/scaffe/scaffe/binomial"
	"github.com/scaffe/scaffe/chain"
	"github.com/scaffe/scaffe/linear"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check"
	"github.com/scaffe/scaffe/schedule/draw"
)

// rewriting reports whether -rewrite is given, the flag of datadriven, with
// which golden files are refreshed elsewhere.
func rewriting() bool { return flag.Lookup("rewrite").Value.String() == "true" }

var (
	chains    = schedule.Algorithm{Reduce: chain.Reduce, Bcast: chain.Bcast}
	binomials = schedule.Algorithm{Reduce: binomial.Reduce, Bcast: binomial.Bcast}
	linears   = schedule.Algorithm{Reduce: linear.Reduce, Bcast: linear.Bcast}
)

func svg(t *testing.T, all []*schedule.Schedule, o draw.Options) []byte {
	t.Helper()
	picture, err := draw.SVG(all, o)
	if err != nil {
		t.Fatal(err)
	}
	return picture
}

func TestGolden(t *testing.T) {
	for _, c := range []struct {
		file string
		all  []*schedule.Schedule
		o    draw.Options
	}{
		{"chain", chains.Build(schedule.Reduce, schedule.Params{Size: 4, Count: 12, Chunk: 4}), draw.Options{Title: "reduce chain", Group: 2}},
		{"binomial", binomials.Build(schedule.Allreduce, schedule.Params{Size: 5, Root: 3, Count: 4, Chunk: 2}), draw.Options{Title: "allreduce <binomial>", Root: 3}},
		{"nothing", chains.Build(schedule.Bcast, schedule.Params{Size: 2}), draw.Options{Title: "bcast of nothing"}},
	} {
		got := svg(t, c.all, c.o)
		file := filepath.Join("testdata", c.file+".svg")
		if rewriting() {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is drawn in another way than before: look at the picture, then go test ./draw -rewrite", file)
		}
	}
}

// titles returns the texts that say what each message is, and an error unless
// the picture is well-formed.
func titles(picture []byte) ([]string, error) {
	var said []string
	in := false
	for d := xml.NewDecoder(bytes.NewReader(picture)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return said, nil
		}
		if err != nil {
			return nil, err
		}
		switch e := token.(type) {
		case xml.StartElement:
			in = e.Name.Local == "title"
		case xml.CharData:
			if in {
				said = append(said, string(e))
			}
		case xml.EndElement:
			in = false
		}
	}
}

// Every message is drawn once, with its own chunk: for an even cut, the chunk
// is the message's number, in scratch memory and out of it.
func TestMessagesKeepTheirChunk(t *testing.T) {
	for name, a := range map[string]schedule.Algorithm{"chain": chains, "binomial": binomials, "linear": linears} {
		for _, v := range []schedule.Collective{schedule.Reduce, schedule.Bcast, schedule.Allreduce} { // of an allgather every pair has its own
			for _, size := range []int{1, 2, 3, 8, 40} {
				all := a.Build(v, schedule.Params{Size: size, Root: size - 1, Count: 19, Chunk: 2})
				said, err := titles(svg(t, all, draw.Options{Title: "t", Root: size - 1}))
				if err != nil {
					t.Fatalf("%s %s over %d ranks: %v", name, v, size, err)
				}
				transfers, err := check.Timeline(all)
				if err != nil {
					t.Fatal(err)
				}
				if len(said) != len(transfers)+1 {
					t.Fatalf("%s %s over %d ranks: %d messages drawn, there are %d", name, v, size, len(said)-1, len(transfers))
				}
				for i, x := range transfers {
					want := fmt.Sprintf("step %d: chunk %d from rank %d to rank %d,", x.Step+1, all[x.From].Ops[x.Send].Msg, x.From, x.To)
					if !strings.HasPrefix(said[i+1], want) {
						t.Errorf("%s %s over %d ranks: %q is drawn, want %q", name, v, size, said[i+1], want)
					}
				}
			}
		}
	}
}

// A level above another takes its chunks out of the scratch memory into which
// the lower one has added them.
func TestChunksAreFollowedThroughScratch(t *testing.T) {
	const count, leader = 6, 1
	whole := schedule.Range{Len: count}
	var all []*schedule.Schedule
	for r := range 4 { // 3 -> 2 (adds) -> 1 (adds, holds all, in a slot) -> 0
		b := schedule.NewBuilder(r, 4, count)
		switch r {
		case 3:
			b.Send(2, schedule.In.At(schedule.Range{Off: 2, Len: 2}))
		case 2:
			s := b.Reserve(2)
			b.RecvReduce(3, schedule.In.At(schedule.Range{Off: 2, Len: 2}), s)
			b.Send(leader, s)
		case leader:
			slot, s := b.Reserve(2), b.Reserve(count)
			b.Recv(2, slot)
			b.Copy(slot, schedule.Scratch.At(schedule.Range{Off: s.Off + 2, Len: 2}))
			b.Send(0, schedule.Scratch.At(schedule.Range{Off: s.Off + 3, Len: 1}))
		case 0:
			b.Recv(leader, schedule.Out.At(schedule.Range{Off: whole.Len - 1, Len: 1}))
		}
		all = append(all, b.Schedule())
	}
	said, err := titles(svg(t, all, draw.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"step 1: chunk 0 from rank 3 to rank 2, added there",
		"step 2: chunk 0 from rank 2 to rank 1, stored there",
		"step 3: chunk 1 from rank 1 to rank 0, stored there", // begins at element 3, not at 2
	}
	if got := strings.Join(said, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("drawn:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

func TestErrors(t *testing.T) {
	all := chains.Build(schedule.Reduce, schedule.Params{Size: 2, Count: 1})
	lonely := schedule.NewBuilder(0, 2, 1)
	lonely.Send(1, schedule.In.At(schedule.Range{Len: 1}))
	for name, c := range map[string]struct {
		all []*schedule.Schedule
		o   draw.Options
	}{
		"none":         {nil, draw.Options{}},
		"no such root": {all, draw.Options{Root: 2}},
		"no match":     {[]*schedule.Schedule{lonely.Schedule(), schedule.NewBuilder(1, 2, 1).Schedule()}, draw.Options{}},
	} {
		if _, err := draw.SVG(c.all, c.o); err == nil || !strings.HasPrefix(err.Error(), "draw: ") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
