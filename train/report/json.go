package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/internal/output"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/internal/version"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/train"
)

// jsonLog writes what happens as JSON, one object a line. A nil one writes
// nothing. The names of the fields are an interface: docs/training.md lists
// them, and programs that others wrote depend on them.
type jsonLog struct {
	out  io.Writer
	file io.Closer // nil: stdout
	name string
	err  error // the first; nothing is written after it
}

type jsonHead struct {
	Event string    `json:"event"`
	Time  time.Time `json:"time"`
}

type jsonStart struct {
	jsonHead
	Version     string       `json:"version"` // of the program
	Net         string       `json:"net"`
	Parameters  int          `json:"parameters"`
	Ranks       int          `json:"ranks"`
	Workers     []int        `json:"workers"`
	Servers     []int        `json:"servers"`
	GlobalBatch int          `json:"global_batch"`
	Iter        int          `json:"iter"`
	MaxIter     int          `json:"max_iter"`
	Design      string       `json:"design"`
	Aggregate   string       `json:"aggregate"`
	Consistency string       `json:"consistency"`
	Spec        string       `json:"spec"`
	LeastBucket int          `json:"least_bucket"`
	Buckets     []jsonBucket `json:"buckets"`
	// Audit is what scaffe explain schemes --format json writes.
	Audit json.RawMessage `json:"audit"` // null: one scheme was asked for that serves all layers
}

type jsonBucket struct {
	Name   string  `json:"name"`
	Bytes  int     `json:"bytes"`
	Scheme string  `json:"scheme"`
	Push   string  `json:"push"`
	Pull   *string `json:"pull"` // null: nothing is pulled
}

type jsonTimes struct {
	Compute float64 `json:"compute_ms"`
	Exposed float64 `json:"exposed_ms"`
	Input   float64 `json:"input_ms"`
	Aside   float64 `json:"aside_ms"`
}

type jsonIteration struct {
	jsonHead
	Iter            int      `json:"iter"`
	Loss            *float32 `json:"loss"` // null: not finite
	Rate            float32  `json:"lr"`
	ImagesPerSecond float64  `json:"images_per_second"`
	jsonTimes
	Skipped bool `json:"skipped"`
}

type jsonSkip struct {
	jsonHead
	Iter  int    `json:"iter"`
	Error string `json:"error"`
}

type jsonDropped struct {
	jsonHead
	Iter int   `json:"iter"`
	Late []int `json:"late"` // ranks
}

type jsonBehind struct {
	jsonHead
	Iter int   `json:"iter"`
	By   []int `json:"by"` // by rank
}

type jsonTest struct {
	jsonHead
	Iter    int         `json:"iter"`
	Net     int         `json:"net"`
	Name    string      `json:"name"`
	Batches int         `json:"batches"`
	Scores  []jsonScore `json:"scores"`
}

type jsonScore struct {
	Name       string   `json:"name"`
	Value      *float32 `json:"value"`
	LossWeight float32  `json:"loss_weight"`
}

type jsonSnapshot struct {
	jsonHead
	Iter  int    `json:"iter"`
	Model string `json:"model"`
	State string `json:"state"`
}

type jsonCheckpoint struct {
	jsonHead
	Iter     int    `json:"iter"`
	Manifest string `json:"manifest"`
	Bytes    int64  `json:"bytes"`
}

type jsonEnd struct {
	jsonHead
	Iterations      int     `json:"iterations"`
	Skipped         int     `json:"skipped"`
	Images          int     `json:"images"`
	Seconds         float64 `json:"seconds"`
	ImagesPerSecond float64 `json:"images_per_second"`
	jsonTimes
	Collectives jsonCollectives `json:"collectives"`
	Order       jsonOrder       `json:"order"` // of all ranks
	Ranks       []jsonRank      `json:"ranks"`
	// Buckets are the rows of the summary's table.
	Buckets   []json.RawMessage `json:"buckets"`
	Straggler *jsonStraggler    `json:"straggler"` // null: none
	GPU       *jsonGPU          `json:"gpu"`       // of rank 0; null: none
	Stopped   bool              `json:"stopped"`
	Error     *string           `json:"error"` // null: none
}

type jsonGPU struct {
	Name    string `json:"name"`
	Memory  int64  `json:"memory_bytes"`
	Pinned  int64  `json:"pinned_bytes"`
	Up      int64  `json:"up_bytes"`
	Down    int64  `json:"down_bytes"`
	Fetches int64  `json:"fetches"`         // waits for the loss and what goes with it
	Waits   int64  `json:"waits"`           // others
	Inside  int64  `json:"iteration_waits"` // of them, in iterations
}

type jsonCollectives struct {
	Push        float64 `json:"push_ms"`
	Pull        float64 `json:"pull_ms"`
	Either      float64 `json:"communication_ms"`
	ExposedPush float64 `json:"exposed_push_ms"`
	ExposedPull float64 `json:"exposed_pull_ms"`
	Hidden      float64 `json:"hidden"`
}

type jsonOrder struct {
	Inversions int64   `json:"inversions"`
	Sums       int64   `json:"sum_inversions"`
	Patience   int64   `json:"let_go_by_patience"`
	Longest    float64 `json:"longest_wait_ms"`
}

type jsonRank struct {
	Rank int `json:"rank"`
	jsonTimes
	Queue   float64 `json:"queue"`
	Depth   float64 `json:"queue_depth"`
	Batches int64   `json:"batches"`
	Waits   int64   `json:"waited_for"`
	Starved float64 `json:"starved_ms"`
	// What became of the order on this rank.
	Order   jsonOrder `json:"order"`
	LeftOut int       `json:"left_out"`
	// How many iterations behind the foremost worker.
	MostBehind int     `json:"most_behind"`
	MeanBehind float64 `json:"mean_behind"`
}

type jsonStraggler struct {
	Rank  int     `json:"rank"`
	Times float64 `json:"times"`
}

// openJSONLog opens a file to append to, or stdout for "-".
func openJSONLog(name string) (*jsonLog, error) {
	if name == "-" {
		return &jsonLog{out: output.Stdout, name: "stdout"}, nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--log-json: %w", err)
	}
	return &jsonLog{out: f, file: f, name: name}, nil
}

func (l *jsonLog) close() error {
	if l == nil {
		return nil
	}
	if l.file != nil {
		l.failed(l.file.Close())
	}
	return l.err
}

// failed keeps the first error and says it at once: training continues.
func (l *jsonLog) failed(err error) {
	if err != nil && l.err == nil {
		l.err = fmt.Errorf("--log-json: nothing more is written to %s: %w", l.name, err)
		fmt.Fprintln(os.Stderr, l.err)
	}
}

// write writes a line, at once.
func (l *jsonLog) write(v any) {
	if l.err != nil {
		return
	}
	b, err := json.Marshal(v)
	if err == nil {
		_, err = l.out.Write(append(b, '\n'))
	}
	l.failed(err)
}

func newHead(event string) jsonHead { return jsonHead{Event: event, Time: time.Now().UTC()} }

func (l *jsonLog) start(comm *collectives.Comm, cfg train.Config, w *train.Worker) {
	if l == nil {
		return
	}
	n := w.Solver().Net()
	v := jsonStart{
		jsonHead: newHead("start"), Version: version.String(), Net: n.Name(), Parameters: n.ParamCount(), Ranks: comm.Size(), Workers: w.Workers(), Servers: w.Servers(), GlobalBatch: w.Solver().Computes().GlobalBatch(),
		Iter: w.Solver().Iter(), MaxIter: int(w.Solver().Param().GetMaxIter()),
		Design: cfg.Design.String(), Aggregate: cfg.SchemeText(), Consistency: cfg.Consistency.String(), Spec: cfg.Spec.Name(), LeastBucket: w.Exchange().MinBucket(),
		Buckets: []jsonBucket{},
	}
	for _, b := range w.Exchange().Buckets() {
		specs := w.Exchange().Specs(&b)
		j := jsonBucket{Name: b.Name, Bytes: b.Bytes(), Scheme: b.Scheme.String(), Push: specs[0].String()}
		if len(specs) > 1 {
			pull := specs[1].String()
			j.Pull = &pull
		}
		v.Buckets = append(v.Buckets, j)
	}
	if a := w.Audit(); a != nil {
		var b bytes.Buffer
		l.failed(a.Write(&b, report.JSON))
		v.Audit = b.Bytes()
	}
	l.write(v)
}

func (l *jsonLog) iteration(p train.Progress, last train.Summary, skipped bool) {
	if l == nil {
		return
	}
	aside := p.TestsAndSnapshots - last.TestsAndSnapshots
	v := jsonIteration{
		jsonHead: newHead("iteration"), Iter: p.Iter, Loss: finite(p.Loss), Rate: p.Rate,
		jsonTimes: newTimes(p.Compute()-last.Compute(), p.Exposed-last.Exposed, p.Input-last.Input, aside, 1),
		Skipped:   skipped || !solver.Finite(float64(p.Loss)),
	}
	if d := p.Total - last.Total - aside; d > 0 {
		v.ImagesPerSecond = float64(p.Images-last.Images) / d.Seconds()
	}
	l.write(v)
}

func (l *jsonLog) skip(s solver.Skip) {
	if l != nil {
		l.write(jsonSkip{newHead("skip"), s.Iter, s.Err.Error()})
	}
}

func (l *jsonLog) dropped(d train.Dropped) {
	if l != nil {
		l.write(jsonDropped{newHead("dropped"), d.Iter, d.Late})
	}
}

func (l *jsonLog) behind(b train.Behind) {
	if l != nil {
		l.write(jsonBehind{newHead("behind"), b.Iter, b.By})
	}
}

func (l *jsonLog) test(t solver.Test) {
	if l == nil {
		return
	}
	v := jsonTest{jsonHead: newHead("test"), Iter: t.Iter, Net: t.Net, Name: t.Name, Batches: t.Batches, Scores: []jsonScore{}}
	for _, s := range t.Scores {
		v.Scores = append(v.Scores, jsonScore{s.Name, finite(float32(s.Value)), s.LossWeight})
	}
	l.write(v)
}

func (l *jsonLog) snapshot(s solver.Snapshot) {
	if l != nil {
		l.write(jsonSnapshot{newHead("snapshot"), s.Iter, s.Model, s.State})
	}
}

func (l *jsonLog) checkpoint(c train.Checkpointed) {
	if l != nil {
		l.write(jsonCheckpoint{newHead("checkpoint"), c.Iter, c.Manifest, c.Bytes})
	}
}

func (l *jsonLog) end(s train.Summary, stopped bool, failure error) {
	if l == nil {
		return
	}
	n, m := s.Iterations, s.Collectives
	v := jsonEnd{
		jsonHead: newHead("end"), Iterations: n, Skipped: s.Skipped, Images: s.Images,
		Seconds: s.Total.Seconds(), ImagesPerSecond: s.ImagesPerSecond(), jsonTimes: newTimes(s.Compute(), s.Exposed, s.Input, s.TestsAndSnapshots, n),
		Collectives: jsonCollectives{ms(m.Push, n), ms(m.Pull, n), ms(m.Communication, n), ms(m.ExposedPush, n), ms(m.ExposedPull, n), m.Hidden()},
		Order:       newOrder(s.Order),
		Ranks:       []jsonRank{}, Buckets: []json.RawMessage{}, Stopped: stopped,
	}
	buckets := bucketTable(s.Buckets)
	for _, row := range buckets.Rows {
		var b bytes.Buffer
		l.failed(report.NewStream(&b, report.JSON, buckets.Columns).Write(row))
		v.Buckets = append(v.Buckets, b.Bytes())
	}
	for _, r := range s.Ranks {
		v.Ranks = append(v.Ranks, jsonRank{
			r.Rank, newTimes(r.Compute, r.Exposed, r.Input, r.TestsAndSnapshots, n), r.Readers.MeanQueued(), r.Readers.MeanDepth(),
			r.Readers.Batches, r.Readers.Waits, ms(r.Readers.Starved, 1), newOrder(r.Order), s.LeftOutOf(r.Rank),
			s.LagOf(r.Rank).Most, s.LagOf(r.Rank).Mean(n),
		})
	}
	if r, times, ok := s.Straggler(); ok {
		v.Straggler = &jsonStraggler{r.Rank, times}
	}
	if g := s.GPU; g != nil {
		v.GPU = &jsonGPU{g.Name, g.Memory, g.Pinned, g.Up, g.Down, g.Fetches, g.Waits, g.Inside}
	}
	if failure != nil {
		text := failure.Error()
		v.Error = &text
	}
	l.write(v)
}

func newTimes(compute, exposed, input, aside time.Duration, iterations int) jsonTimes {
	return jsonTimes{ms(compute, iterations), ms(exposed, iterations), ms(input, iterations), ms(aside, iterations)}
}

func newOrder(o nbc.Order) jsonOrder {
	return jsonOrder{o.Inversions, o.Sums, o.Patience, ms(o.Longest, 1)}
}

// ms is milliseconds for each of n iterations, to the nanosecond.
func ms(d time.Duration, n int) float64 {
	if n == 0 {
		return 0
	}
	return math.Round(d.Seconds()*1e9/float64(n)) / 1e6
}

// finite returns x, or nil where JSON has no word for it.
func finite(x float32) *float32 {
	if !solver.Finite(float64(x)) {
		return nil
	}
	return &x
}
