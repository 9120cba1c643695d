package campaign

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/internal/svg"
	"github.com/scaffe/scaffe/replay/workload"
)

// distribution is a figure of the P3 paper that shows how a net's parameters are spread over its layers (section 3), by
// the built-in profiles: nothing is measured.
type distribution struct {
	name, title string
	nets        []string
}

var distributions = []distribution{{"p3-5", "Parameters by layer", []string{"resnet50-titanx", "inception_v3-titanx", "vgg19-titanx", "sockeye-p4000"}}}

// Distributions lists the names of the figures of parameters by layer, each with its title.
func Distributions() (names, titles []string) {
	for _, f := range distributions {
		names, titles = append(names, f.name), append(titles, f.title)
	}
	return names, titles
}

// ParametersRow is a layer that has parameters.
type ParametersRow struct {
	Figure, Profile string
	Layer           int // from 1 on, of those that have parameters, in the order of the forward pass
	Name, Type      string
	Parameters      int
	Largest         int     // of its arrays, such as weights: what a parameter server without slices moves at once
	Share           float64 // of the net's
}

var parametersColumns = []report.Column[ParametersRow]{
	{Name: "figure", Value: func(r ParametersRow) any { return r.Figure }},
	{Name: "profile", Value: func(r ParametersRow) any { return r.Profile }},
	{Name: "layer", Value: func(r ParametersRow) any { return r.Layer }},
	{Name: "name", Value: func(r ParametersRow) any { return r.Name }},
	{Name: "type", Value: func(r ParametersRow) any { return r.Type }},
	{Name: "parameters", Value: func(r ParametersRow) any { return r.Parameters }},
	{Name: "largest_array", Value: func(r ParametersRow) any { return r.Largest }},
	{Name: "share", Value: func(r ParametersRow) any { return r.Share }},
}

// heaviest is a net in a line: the layer with the most parameters, and that with the largest array.
type heaviest struct {
	ParametersRow
	largest     ParametersRow
	layers, all int
}

var heaviestColumns = []report.Column[heaviest]{
	{Name: "profile", Left: true, Value: func(r heaviest) any { return r.Profile }},
	{Name: "parameters", Value: func(r heaviest) any { return r.all }},
	{Name: "layers", Value: func(r heaviest) any { return r.layers }},
	{Name: "heaviest", Left: true, Value: func(r heaviest) any { return r.Name }},
	{Name: "layer", Value: func(r heaviest) any { return r.Layer }},
	{Name: "layer_parameters", Title: "its parameters", Value: func(r heaviest) any { return r.Parameters }},
	{Name: "share", Title: "% of all", Value: func(r heaviest) any {
		return report.Shown{Value: r.Share, Text: fmt.Sprintf("%.1f", 100*r.Share)}
	}},
	{Name: "largest_array", Title: "largest array", Value: func(r heaviest) any { return r.largest.Largest }},
	{Name: "largest_in", Title: "in", Left: true, Value: func(r heaviest) any { return r.largest.Name }},
}

// ParametersConfig says of which nets the parameters are shown; nil is all of the figure's.
type ParametersConfig struct {
	Name string
	Nets []string
	Out  string // the file of the rows
}

// Parameters writes the parameters of a figure's nets by layer: rows to c.Out, a picture beside it, and the heaviest layers to stdout.
func Parameters(c ParametersConfig, stdout, log io.Writer) error {
	rows, f, err := c.rows()
	if err != nil {
		return err
	}
	if err := writeRows(c.Out, parametersColumns, rows); err != nil {
		return err
	}
	picture := strings.TrimSuffix(c.Out, ".csv") + ".svg"
	if err := atomicfile.Write(atomicfile.OS, picture, []byte(drawParameters(f.name+": "+f.title, rows))); err != nil {
		return err
	}
	t := report.Table[heaviest]{Columns: heaviestColumns}
	for _, net := range byProfile(rows) {
		h := heaviest{layers: len(net)}
		for _, r := range net {
			h.all += r.Parameters
			if r.Parameters > h.Parameters {
				h.ParametersRow = r
			}
			if r.Largest > h.largest.Largest {
				h.largest = r
			}
		}
		t.Rows = append(t.Rows, h)
	}
	if err := t.Write(stdout, report.Text); err != nil {
		return err
	}
	fmt.Fprintf(log, "rows: %s, picture: %s\n", c.Out, picture)
	return nil
}

// rows returns a row for each layer that has parameters.
func (c *ParametersConfig) rows() (rows []ParametersRow, f *distribution, err error) {
	i := slices.IndexFunc(distributions, func(f distribution) bool { return f.name == c.Name })
	if i < 0 {
		names, _ := Distributions()
		return nil, nil, fmt.Errorf("unknown figure %q: want one of %s", c.Name, strings.Join(names, ", "))
	}
	f = &distributions[i]
	for _, net := range c.Nets {
		if !slices.Contains(f.nets, net) {
			return nil, nil, fmt.Errorf("%s has no net %q: want some of %s", c.Name, net, strings.Join(f.nets, ", "))
		}
	}
	for _, net := range f.nets {
		if c.Nets != nil && !slices.Contains(c.Nets, net) {
			continue
		}
		p, err := workload.Builtin(net)
		if err != nil {
			return nil, nil, err
		}
		n := 0
		for _, l := range p.Layers {
			if l.Elements() == 0 {
				continue
			}
			n++
			rows = append(rows, ParametersRow{c.Name, net, n, l.Name, l.Type, l.Elements(), slices.Max(l.Params), float64(l.Elements()) / float64(p.Elements())})
		}
	}
	return rows, f, nil
}

// byProfile divides rows by their nets, in the order in which these appear.
func byProfile(rows []ParametersRow) (all [][]ParametersRow) {
	for i, r := range rows {
		if i == 0 || r.Profile != rows[i-1].Profile {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], r)
	}
	return all
}

// drawParameters returns the picture: a panel for each net with a bar for each layer.
func drawParameters(title string, rows []ParametersRow) string {
	const wide = 1.4 * panelWidth
	nets := byProfile(rows)
	columns := min(2, max(1, len(nets)))
	lines := (len(nets) + columns - 1) / columns
	var d svg.Drawing
	d.Begin(max(leftMargin+float64(columns)*(wide+gapX), 620), topMargin+float64(lines)*(panelHeight+gapY)+10, title, colored(1, ""))
	d.Text("title", 20, 28, "%s", title)
	d.Text("tick", 20, 44, "millions of parameters against the layers that have any, in the order of the forward pass")
	for i, net := range nets {
		x, y := leftMargin+float64(i%columns)*(wide+gapX), topMargin+float64(i/columns)*(panelHeight+gapY)
		most, all := 0, 0
		for _, r := range net {
			most, all = max(most, r.Parameters), all+r.Parameters
		}
		step, top := axisSteps(float64(most))
		d.Text("", x, y-7, "%s: %.1f million in %s", net[0].Profile, float64(all)/1e6, svg.Count(len(net), "layer"))
		for v := 0.0; v <= top+step/2; v += step {
			at := y + panelHeight*(1-v/top)
			d.Line("grid", x, at, x+wide, at)
			d.Text("tick end", x-5, at+3, "%.3g", v/1e6)
		}
		width := wide / float64(len(net))
		for k, r := range net {
			high := panelHeight * float64(r.Parameters) / top
			d.Rect("bar0", x+(float64(k)+0.1)*width, y+panelHeight-high, 0.8*width, high, 0)
		}
		for _, k := range []int{0, len(net) / 2, len(net) - 1} {
			d.Text("tick middle", x+(float64(k)+0.5)*width, y+panelHeight+13, "%s", net[k].Name)
		}
		d.Rect("frame", x, y, wide, panelHeight, 0)
	}
	d.End()
	return d.String()
}
