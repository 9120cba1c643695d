package draw_test

import (
	"fmt"
	"strings"

	"github.com/scaffe/scaffe/chain"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/draw"
)

func ExampleSVG() {
	p := schedule.Params{Size: 4, Count: 8, Chunk: 1}
	var all []*schedule.Schedule
	for p.Rank = range p.Size {
		b := schedule.NewBuilder(p.Rank, p.Size, p.Count)
		chain.Reduce(b, p)
		all = append(all, b.Schedule())
	}
	svg, err := draw.SVG(all, draw.Options{Title: "reduce chain"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for line := range strings.Lines(string(svg)) {
		if strings.Contains(line, `class="facts"`) {
			fmt.Print(line)
		}
	}
	// Output:
	// <text class="facts" x="28" y="62">4 ranks · 8 chunks · 24 messages · 10 steps</text>
}
