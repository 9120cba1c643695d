package spec

import "github.com/scaffe/scaffe/schedule"

// BuildParts returns the calling rank's schedule of c whose buffer is made of
// parts, each done as Build would do it alone with its own
func BuildParts(c Call, parts []schedule.Range, specs []Spec) (*schedule.Schedule, error) {
	b := schedule.NewBuilder(c.Rank, c.Size, c.Count)
	all := make([]int, c.Size)
	for i := range all {
		all[i] = i
	}
	for i, r := range parts {
		one := c
		one.Count = r.Len
		if err := one.add(b.Sub(all, schedule.In.At(r), schedule.Out.At(r)), specs[i]); err != nil {
			return nil, err
		}
	}
	return b.Schedule(), nil
}
