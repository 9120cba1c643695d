package tune

import "github.com/scaffe/scaffe/schedule"

// Limit returns a point's limit and the shortest time measured, for tests.
func Limit(r *Result, p Point) (limit, best float64) {
	c, err := schedule.ParseCollective(p.Collective)
	if err != nil {
		panic(err)
	}
	best = p.Specs[0].best()
	for _, s := range p.Specs {
		best = min(best, s.best())
	}
	return r.limit(c, p.Bytes), best
}
