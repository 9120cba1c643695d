package collectives

import (
	"context"
	"fmt"
	"strings"

	"github.com/scaffe/scaffe/mem"
)

// Compare is a collective in which the ranks compare numbers, equally many on each, such as
// digests of what must be equal everywhere. It returns, alike on all ranks, a text for each
// number: "" where all ranks have the same, and else which of them agree, as ranks of the
// world, such as "ranks 0, 1, 3 have one, rank 2 another".
func (c *Comm) Compare(ctx context.Context, numbers []uint64) ([]string, error) {
	texts := make([]string, len(numbers))
	if len(numbers) == 0 || c.Size() == 1 {
		return texts, nil
	}
	mine := make([]int64, len(numbers))
	for i, x := range numbers {
		mine[i] = int64(x)
	}
	all := make([]int64, len(mine)*c.Size())
	if err := c.Allgather(ctx, mem.Of(mine), mem.Of(all), nil, mem.Int64); err != nil {
		return nil, err
	}
	for i := range texts {
		texts[i] = groups(c.ranks, func(rank int) int64 { return all[rank*len(mine)+i] })
	}
	return texts, nil
}

// groups says which ranks have equal numbers, "" where all have. named are what to call them.
func groups(named []int, of func(rank int) int64) string {
	var order []int64 // as the ranks first have them
	by := map[int64][]string{}
	for r, name := range named {
		x := of(r)
		if by[x] == nil {
			order = append(order, x)
		}
		by[x] = append(by[x], fmt.Sprint(name))
	}
	if len(order) == 1 {
		return ""
	}
	words := make([]string, len(order))
	for i, x := range order {
		s, has := "s", "have"
		if len(by[x]) == 1 {
			s, has = "", "has"
		}
		if words[i] = fmt.Sprintf("rank%s %s", s, strings.Join(by[x], ", ")); i == 0 {
			words[i] += " " + has + " one"
		} else {
			words[i] += " another"
		}
	}
	return strings.Join(words, ", ")
}
