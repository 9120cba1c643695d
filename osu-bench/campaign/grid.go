package campaign

import (
	"fmt"
	"strconv"
	"strings"
)

// Layout is how many ranks there are on how many nodes. One node is this machine, several
// are the lab's.
type Layout struct{ Nodes, PPN int }

// Ranks returns how many there are in all.
func (l Layout) Ranks() int { return l.Nodes * l.PPN }

func (l Layout) String() string {
	if l.Nodes == 1 {
		return fmt.Sprintf("%d ranks", l.PPN)
	}
	return fmt.Sprintf("%d × %d", l.Nodes, l.PPN)
}

// ParseLayouts reads a list such as "2,4,4x2": ranks on this machine, or nodes times ranks
// on each.
func ParseLayouts(s string) ([]Layout, error) {
	var all []Layout
	for word := range strings.SplitSeq(s, ",") {
		nodes, ppn, both := strings.Cut(word, "x")
		if !both {
			nodes, ppn = "1", word
		}
		n, err1 := strconv.Atoi(nodes)
		p, err2 := strconv.Atoi(ppn)
		l := Layout{n, p}
		if err1 != nil || err2 != nil || n < 1 || p < 1 || l.Ranks() < 2 {
			return nil, fmt.Errorf("invalid layout %q: want ranks on this machine, such as 4, or nodes x ranks in the lab, such as 4x2", word)
		}
		all = append(all, l)
	}
	return all, nil
}

// Collectives are those that can be measured.
var Collectives = []string{"barrier", "reduce", "bcast", "allreduce"}

// ParseCollectives reads a list of them.
func ParseCollectives(s string) ([]string, error) {
	list := strings.Split(s, ",")
	for _, c := range list {
		if !strings.Contains(","+strings.Join(Collectives, ",")+",", ","+c+",") {
			return nil, fmt.Errorf("unknown collective %q: want some of %s", c, strings.Join(Collectives, ","))
		}
	}
	return list, nil
}

// Config is what a campaign measures.
type Config struct {
	Layouts     []Layout
	Collectives []string
	Min, Max    int // bytes
	Factor      int // from one size to the next
	Quick       bool
	Out         string // the CSV file
}

// sizes returns those from least to most that are of the grid.
func (c *Config) sizes(least, most int) (all []int) {
	for n := c.Min; n <= c.Max; n *= c.Factor {
		if least <= n && n <= most {
			all = append(all, n)
		}
	}
	return all
}

// band is a range of sizes that are repeated equally often.
type band struct {
	sizes []int
	often int
}

// repeats are how often a size is measured: up to 8 KiB, up to 1 MiB, and beyond.
type repeats struct{ small, middle, large int }

// repeats returns how often sizes are measured. Six is the least that gives an interval.
func (c *Config) repeats(l Layout, cores int) repeats {
	r := repeats{1000, 100, 15}
	switch {
	case l.Nodes > 1:
		r = repeats{200, 20, 6}
	case l.PPN > cores:
		r = repeats{400, 60, 9}
	}
	if c.Quick {
		r = repeats{max(100, r.small/3), max(12, r.middle/3), max(6, r.large*2/3)}
	}
	return r
}

const (
	smallMost  = 8 << 10
	middleMost = 1 << 20
	atAll      = 1 << 62
)

// bands divides the sizes from least on by how often they are measured. A barrier has
// the one size 0.
func (c *Config) bands(collective string, l Layout, cores, least int) []band {
	r := c.repeats(l, cores)
	if collective == "barrier" {
		return []band{{[]int{0}, r.small}}
	}
	var all []band
	add := func(from, to, often int) {
		if s := c.sizes(max(from, least), to); len(s) > 0 {
			all = append(all, band{s, often})
		}
	}
	add(0, smallMost, r.small)
	add(smallMost+1, middleMost, r.middle)
	add(middleMost+1, atAll, r.large)
	return all
}
