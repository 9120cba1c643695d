// Command poseidon trains a net of its own with Poseidon's API (Table 2): BestScheme, Query, Send, Receive, Move.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/kernels/blas"
	"github.com/scaffe/scaffe/kernels/factors"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/syncer"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/syncer/ps"
	"github.com/scaffe/scaffe/syncer/sfb"
)

const batch, width, rate = 32, 64, 0.1 // batch is that of all workers

// layer is fully connected: top = tanh(bottom × weightsᵀ).
type layer struct {
	name              string
	out, in           int
	weights, grad     []float32 // out×in
	u, v, top, bottom []float32 // u and v, the factors of grad, have a row for each sample, as top and its gradient have
	sync              syncer.Syncer
}

func (l *layer) forward(v []float32) []float32 {
	rows := len(v) / l.in
	l.v, l.top, l.u, l.bottom = v, make([]float32, rows*l.out), make([]float32, rows*l.out), make([]float32, len(v))
	blas.Gemm(false, true, rows, l.out, l.in, 1, v, l.in, l.weights, l.in, 0, l.top, l.out)
	for i, x := range l.top {
		l.top[i] = float32(math.Tanh(float64(x)))
	}
	return l.top
}

func (l *layer) backward(diff []float32) []float32 {
	for i, y := range l.top {
		l.u[i] = diff[i] * (1 - y*y)
	}
	blas.Gemm(false, false, len(l.v)/l.in, l.in, l.out, 1, l.u, l.out, l.weights, l.in, 0, l.bottom, l.in)
	return l.bottom
}

// connect makes the layer's syncer, as BestScheme says.
func (l *layer) connect(comm *collectives.Comm, book *coordinator.Book) error {
	b := syncer.Bucket{Name: l.name, Data: mem.Of(l.weights), Diff: mem.Of(l.grad)}
	scheme, err := book.BestScheme(l.name)
	switch scheme {
	case coordinator.SFB:
		l.sync, err = sfb.New(comm, b, []sfb.Matrix{{
			Name: l.name, Shape: factors.Shape{Out: l.out, In: l.in}, Rows: book.Batch, Passes: 1, Weights: ps.Range{Len: len(l.weights)},
			Put: func(s *factors.Stack, to []float32, part, pass int) { s.Put(to, part, pass, l.u, l.v) },
		}})
	case coordinator.PS:
		var pairs []ps.Pair
		for _, p := range book.Pairs {
			if own := &book.Layers[p.Layer]; own.Name == l.name {
				pairs = append(pairs, ps.Pair{Range: ps.Range{Off: p.Off - own.Params[0].Off, Len: p.Len}, Server: p.Server})
			}
		}
		l.sync, err = ps.New(syncer.Everyone(comm), b, pairs)
	}
	if known, _ := book.Query("n_worker", "n_server", "batchsize"); comm.Rank() == 0 && err == nil {
		fmt.Printf("%s: %v, for %v workers, %v servers, %v samples\n", l.name, scheme, known[0], known[1], known[2])
	}
	return err
}

// send starts to move the gradient, or its factors, and returns at once.
func (l *layer) send() error {
	if s, factored := l.sync.(*sfb.Syncer); factored {
		s.Put(0, 0)
	} else {
		blas.Gemm(true, false, l.out, l.in, len(l.v)/l.in, 1, l.u, l.out, l.v, l.in, 0, l.grad, l.in)
	}
	return l.sync.Push()
}

// receive waits for what others send, moves it, and waits for what servers send back.
func (l *layer) receive(ctx context.Context) error {
	for range l.sync.Parts() {
		i, err := l.sync.Pushed(ctx)                         // factors are a gradient by now
		if p := l.sync.Parts()[i]; err == nil && p.Updates { // Move: the update, at whoever holds the part
			blas.Axpy(-rate, l.grad[p.Off:p.End()], l.weights[p.Off:p.End()])
		}
		if err == nil {
			err = l.sync.Pull(i)
		}
		if err != nil {
			return err
		}
	}
	return l.sync.Pulled(ctx)
}

func train(ctx context.Context, comm *collectives.Comm, iterations int) error {
	net := []*layer{{name: "ip1", out: width, in: width}, {name: "ip2", out: 1, in: width}}
	all, own := coordinator.Places{All: true}, batch/comm.Size() // samples of a worker
	c := coordinator.Config{Nodes: comm.Nodes(), Workers: all, Servers: all, Batch: slices.Repeat([]int{own}, comm.Size())}
	random := rand.New(rand.NewPCG(1, 1)) // alike on all workers
	for i, l := range net {
		l.weights, l.grad = normal(random, make([]float32, l.out*l.in), 1/math.Sqrt(width)), make([]float32, l.out*l.in)
		c.Layers = append(c.Layers, coordinator.Layer{Name: l.name, Type: coordinator.FC, Rows: l.out, Cols: l.in, Params: []ps.Range{{Off: i * width * width, Len: len(l.weights)}}})
	}
	book, err := coordinator.New(c)
	for i := 0; i < len(net) && err == nil; i++ {
		if err = net[i].connect(comm, book); err == nil {
			defer net[i].sync.Close()
		}
	}
	for iter := 0; iter < iterations && err == nil; iter++ {
		x, loss, jobs := normal(random, make([]float32, batch*width), 1)[comm.Rank()*own*width:][:own*width], []float64{0}, make(chan error)
		diff := slices.Clone(net[1].forward(net[0].forward(x)))
		for i, y := range diff { // it is to be tanh(x0 − x1)
			e := float64(y) - math.Tanh(float64(x[i*width]-x[i*width+1]))
			diff[i], loss[0] = float32(e/batch), loss[0]+e*e/2/batch
		}
		for _, l := range slices.Backward(net) { // Algorithm 2: a job for each layer, beside backward
			diff = l.backward(diff)
			err = errors.Join(err, l.send())
			go func() { jobs <- l.receive(ctx) }()
		}
		err = errors.Join(err, <-jobs, <-jobs, comm.Allreduce(ctx, mem.Of(loss), mem.Of(loss), mem.Float64, mem.Sum)) // C is all ones
		if comm.Rank() == 0 && iter%(iterations-1) == 0 {
			fmt.Printf("iteration %d: loss %.2f\n", iter, loss[0])
		}
	}
	return err
}

func normal(random *rand.Rand, v []float32, deviation float64) []float32 {
	for i := range v {
		v[i] = float32(random.NormFloat64() * deviation)
	}
	return v
}

func main() {
	launch.Main()
	local := flag.Int("local", 0, "workers in this process, instead of under mpirun")
	flag.Parse()
	err := launch.Run(context.Background(), launch.Options{Local: *local}, func(ctx context.Context, comm *collectives.Comm) error {
		return train(ctx, comm, 500)
	})
	if err != nil {
		log.Fatal(err)
	}
}
