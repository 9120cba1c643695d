package net

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/scaffe/scaffe/caffe/proto"
)

// TestGolden builds the nets in testdata/golden and holds what comes out
// against the transcripts; go test -rewrite refreshes them.
//
//	build [phase=test] [level=N] [stage=(a,b)]
//
// describes the net, a layer a line:
//
//	bottoms → Type name → tops  {params}  ↓ bottoms that take a gradient
//
// or says what is wrong with it.
func TestGolden(t *testing.T) {
	datadriven.Walk(t, "testdata/golden", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			n, err := buildGolden(t, d)
			if err != nil {
				return err.Error() + "\n"
			}
			defer n.Close()
			return describe(n)
		})
	})
}

func buildGolden(t *testing.T, d *datadriven.TestData) (*Net, error) {
	t.Helper()
	o := Options{Phase: proto.Phase_TRAIN}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "phase":
			o.Phase = proto.Phase(proto.Phase_value[strings.ToUpper(a.Vals[0])])
		case "level":
			a.Scan(t, 0, &o.Level)
		case "stage":
			o.Stages = a.Vals
		default:
			d.Fatalf(t, "unknown argument %s", a.Key)
		}
	}
	f, err := proto.ParseNet("net.prototxt", []byte(d.Input))
	if err != nil {
		return nil, err
	}
	return New(f, o)
}

func describe(n *Net) string {
	var s strings.Builder
	for i, l := range n.Layers() {
		if len(l.Bottoms) > 0 {
			fmt.Fprintf(&s, "%s → ", strings.Join(l.Bottoms, " "))
		}
		fmt.Fprintf(&s, "%s %s", l.Type, l.Name)
		for j, top := range l.Tops {
			if j == 0 {
				s.WriteString(" →")
			}
			fmt.Fprintf(&s, " %s%v", top, n.nodes[i].top[j].Shape())
			if w := n.nodes[i].weights[j]; w != 0 {
				fmt.Fprintf(&s, "×%g", w)
			}
		}
		for _, k := range append(l.Params, l.Shared...) {
			p := n.Learnable()[k]
			fmt.Fprintf(&s, "  {%s lr %g decay %g at %d}", p.Name, p.LRMult, p.DecayMult, p.Offset)
		}
		if l.Backward {
			s.WriteString("  ↓")
			for j, down := range n.nodes[i].propagate {
				if down {
					s.WriteString(" " + l.Bottoms[j])
				}
			}
		}
		s.WriteByte('\n')
	}
	s.WriteString("outputs:")
	for _, o := range n.Output() {
		s.WriteString(" " + o.Name)
	}
	fmt.Fprintf(&s, "\nparameters: %d, packed %d\n", n.ParamCount(), n.PackedCount())
	return s.String()
}
