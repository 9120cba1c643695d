package workload

import (
	"fmt"
	"strings"

	"github.com/scaffe/scaffe/internal/report"
)

// List returns a table of the built-in profiles.
func List() (*report.Table[*Profile], error) {
	type column = report.Column[*Profile]
	t := &report.Table[*Profile]{Columns: []column{
		{Name: "profile", Left: true, Value: func(p *Profile) any { return p.Name }},
		{Name: "parameters", Value: func(p *Profile) any { return p.Elements() }},
		{Name: "bytes", Title: "MB", Value: func(p *Profile) any {
			return report.Shown{Value: p.Bytes(), Text: fmt.Sprintf("%.1f", float64(p.Bytes())/1e6)}
		}},
		{Name: "batch", Value: func(p *Profile) any { return p.Batch }},
		{Name: "forward_ms", Digits: 3, Value: func(p *Profile) any { return p.Forward() }},
		{Name: "backward_ms", Digits: 3, Value: func(p *Profile) any { return p.Backward() }},
		{Name: "update_ms", Digits: 3, Value: func(p *Profile) any { return p.Update }},
		{Name: "images_per_second", Title: "images/s", Value: func(p *Profile) any {
			return report.Shown{Value: p.Rate(), Text: fmt.Sprintf("%.4g", p.Rate())}
		}},
		{Name: "source", Left: true, Value: func(p *Profile) any { s, _, _ := strings.Cut(p.Source, "\n"); return s }},
	}}
	for _, name := range Builtins() {
		p, err := Builtin(name)
		if err != nil {
			return nil, err
		}
		t.Rows = append(t.Rows, p)
	}
	return t, nil
}
