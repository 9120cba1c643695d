package coordinator

import "math/big"

// Cost is how many values (float32) a node sends and receives in an iteration to
// keep a layer in step, by what the node is: Table 1 of the paper.
type Cost struct {
	Server, Worker float64
	Both           float64 // a node that is a server and a worker
}

// PSCost is the first row of Table 1: values parameters (MN of an M×N layer),
// evenly divided over p2 servers, for p1 workers.
func PSCost(values, p1, p2 int) Cost {
	v, w, s := float64(values), float64(p1), float64(p2)
	return Cost{Server: 2 * w * v / s, Worker: 2 * v, Both: 2 * v * (w + s - 2) / s}
}

// SFBCost is the second row: every worker sends its factors, k rows of an M and an N
// side, to all others. There are no servers.
func SFBCost(m, n, k, p1 int) Cost {
	c := 2 * float64(k) * float64(p1-1) * (float64(m) + float64(n))
	return Cost{Worker: c, Both: c}
}

// AdamCost is the third row: factors to one server, the matrix of values
// parameters back; of the server the largest cost that a node has.
func AdamCost(values, m, n, k, p1 int) Cost {
	v, w, f := float64(values), float64(p1), float64(k)*(float64(m)+float64(n))
	return Cost{Server: w*v + w*f, Worker: f + v, Both: (w - 1) * (v + f)}
}

// algorithm1 is line 6 of Algorithm 1, 2K(P1−1)(M+N) ≤ 2MN(P1+P2−2)/P2, in whole
// numbers of any size.
func algorithm1(m, n, k, p1, p2 int) bool {
	product := func(factors ...int) *big.Int {
		x := big.NewInt(1)
		for _, f := range factors {
			x.Mul(x, big.NewInt(int64(f)))
		}
		return x
	}
	return product(2, k, p1-1, m+n, p2).Cmp(product(2, m, n, p1+p2-2)) <= 0
}

// Values returns the values that the busiest rank sends and receives in an
// iteration to keep l in step by s; ok is false where the scheme cannot serve the
// layer. For ps, sfb and adam that is Table 1. A reduction and a broadcast are counted
// as by chains, in which a rank receives all values and sends them on, each way; an
// allreduce as by a ring, in which it sends and receives all but one of P1 parts,
// twice; onebit as an allreduce of a bit for each weight, two values for each column, and the
// bias; dgc as an allgather of places and values, each counted as a value, in which everyone sends to
// everyone.
func (b *Book) Values(l *Layer, s Scheme) (values float64, ok bool) {
	if s.FactorsOnly() && l.noFactors() != "" {
		return 0, false
	}
	e, p1, p2 := l.Elements(), len(b.Workers), len(b.Servers)
	ring := func(values float64) float64 { return 4 * values * float64(p1-1) / float64(p1) }
	switch s {
	case Reduce:
		return min(4, 2*float64(p1-1)) * float64(e), true
	case Allreduce:
		return ring(float64(e)), true
	case PS:
		return b.busiest(PSCost(e, p1, p2)), true
	case SFB:
		return SFBCost(l.Rows, l.Cols, b.factorRows(l), p1).Worker, true
	case Adam:
		return b.busiest(AdamCost(e, l.Rows, l.Cols, b.factorRows(l), p1)), true
	case OneBit:
		return ring(float64(l.Rows*l.Cols)/32 + 2*float64(l.Cols) + float64(e-l.Rows*l.Cols)), true
	case DGC:
		return 4 * float64(b.sent(l)) * float64(p1-1), true
	}
	return 0, false
}

// sent is how many of a layer's values dgc sends.
func (b *Book) sent(l *Layer) (n int) {
	for _, p := range l.Params {
		n += Count(p.Len, b.Sparse.Sparsity)
	}
	return n
}

// busiest returns the cost of the rank with the most to move.
func (b *Book) busiest(c Cost) float64 {
	servers, workers, both := b.roles()
	most := 0.0
	for _, x := range []struct {
		there bool
		cost  float64
	}{{servers, c.Server}, {workers, c.Worker}, {both, c.Both}} {
		if x.there {
			most = max(most, x.cost)
		}
	}
	return most
}
