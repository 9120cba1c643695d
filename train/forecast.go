package train

import (
	"fmt"
	"time"

	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/models"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// forecast predicts iterations of this training, and says what it goes by. Nothing has been computed yet, so times
// are those of the multiplications and additions of convolutions and inner products at the rate that has been
// measured of a product; layers whose time is that of memory count as none. Where there is no such rate it
// returns nil, and why.
func (w *Worker) forecast(c Config, n *coordinator.Network) (f *exchange.Forecast, basis string) {
	if w.schemes.rate == 0 {
		return nil, "how fast the ranks compute is not known"
	}
	net := w.solver.Net()
	data, _ := net.Packed()
	f = &exchange.Forecast{
		Design: c.Design, UpdateAtOnce: w.solver.Clips() || w.skipNotFinite, Bucket: c.Bucket,
		Layers: w.exchangeLayers(), Count: data.Len() / mem.Float32.Size(), Network: n,
		Passes: make([]exchange.Passes, len(net.Layers())),
	}
	took := func(flop float64) time.Duration {
		return time.Duration(flop / w.schemes.rate * float64(time.Second))
	}
	costs := models.Costs(net)
	var all time.Duration
	first := true // whose input needs no gradient
	for i := range costs {
		p := &f.Passes[i]
		p.Forward = took(2 * float64(costs[i].MultiplyAdds))
		if p.Backward = 2 * p.Forward; first {
			p.Backward = p.Forward
		}
		first = first && p.Forward == 0
		all += p.Forward + p.Backward
	}
	if passes := int(w.solver.Param().GetIterSize()); passes > 1 { // the others come before the one under which gradients move
		f.Passes[0].Forward += time.Duration(passes-1) * all
		all *= time.Duration(passes)
	}
	inBook := exchange.InBook(f.Layers)
	f.Rebuilding = func(layer int) (left, product time.Duration) {
		l := &n.Book.Layers[inBook[layer]]
		rows := 0
		for _, rank := range w.roles.workers {
			rows += l.Factors[rank]
		}
		back := f.Passes[layer].Backward
		return back - min(back, f.Passes[layer].Forward), took(2 * float64(rows) * float64(l.Rows*l.Cols))
	}
	bytes := mem.Float32.Bytes(f.Count)
	const accesses = 5 // of momentum's update to a parameter: it reads parameter, gradient and history, and writes two
	m := &n.Selector.Model
	f.Update = time.Duration(float64(accesses*bytes) / m.Core.At(float64(3*bytes), m.Cache) * float64(time.Second))
	return f, fmt.Sprintf("computation %v: multiplications and additions counted, at %.3g G/s as measured of a product", units.Rough(all), w.schemes.rate/1e9)
}
