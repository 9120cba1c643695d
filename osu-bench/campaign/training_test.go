package campaign

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/scaffe/scaffe/caffe/proto"
)

// The runs are the paper's: Figure 9 on more and more ranks, each with its own batch of 100 (Table 3), Figure 11 on four
// for 4,000 iterations.
func TestTrainingRuns(t *testing.T) {
	names, titles := Trainings()
	if len(names) != len(titles) {
		t.Fatal(names, titles)
	}
	for _, tt := range []struct {
		config TrainingConfig
		want   []string
	}{
		{TrainingConfig{Name: "poseidon-9"}, []string{
			"drawn digits, poseidon on 1 rank, 100 samples each, 2000 iterations", "drawn digits, poseidon on 2 ranks, 100 samples each, 2000 iterations",
			"drawn digits, poseidon on 4 ranks, 100 samples each, 2000 iterations", "drawn digits, poseidon on 8 ranks, 100 samples each, 2000 iterations",
		}},
		{TrainingConfig{Name: "poseidon-11", CIFAR10: "there"}, []string{
			"CIFAR-10, poseidon on 4 ranks, 100 samples each, 4000 iterations", "CIFAR-10, onebit on 4 ranks, 100 samples each, 4000 iterations",
		}},
		{TrainingConfig{Name: "poseidon-11", Quick: true, Schemes: []string{"ps"}}, []string{"drawn digits, ps on 4 ranks, 25 samples each, 400 iterations"}},
		{TrainingConfig{Name: "poseidon-11", Quick: true, Ranks: []int{3}, Schemes: []string{"auto"}, Iterations: 7, Batch: 2}, []string{"drawn digits, auto on 3 ranks, 2 samples each, 7 iterations"}},
		{TrainingConfig{Name: "p3-11", Schemes: []string{"dgc"}}, []string{
			"drawn digits, dgc on 4 ranks, 100 samples each, 4000 iterations", "drawn digits, dgc on 4 ranks, 100 samples each, 4000 iterations, rate 0.0005, momentum 0.9",
			"drawn digits, dgc on 4 ranks, 100 samples each, 4000 iterations, rate 0.002, momentum 0.9", "drawn digits, dgc on 4 ranks, 100 samples each, 4000 iterations, rate 0.001, momentum 0.8",
			"drawn digits, dgc on 4 ranks, 100 samples each, 4000 iterations, rate 0.001, momentum 0.95",
		}},
	} {
		f, runs, err := tt.config.runs()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range runs {
			got = append(got, r.String())
			if name, err := ParseTrained(r.scheme); err != nil || name != r.scheme {
				t.Error(r, err)
			}
		}
		if d := cmp.Diff(tt.want, got); d != "" || f.figure != tt.config.Name {
			t.Error(d)
		}
	}
	if _, _, err := (&TrainingConfig{Name: "poseidon-5"}).runs(); err == nil || !strings.Contains(err.Error(), `unknown figure "poseidon-5": want one of poseidon-9, poseidon-11, p3-11`) {
		t.Error(err)
	}
}

// Points of the curves are tests, the last where there is one: training does not test where it ends.
func TestTrainingPoints(t *testing.T) {
	for iterations, want := range map[int][2]int{4000: {50, 4000}, 400: {10, 400}, 1000: {12, 996}, 25: {10, 20}, 10: {10, 10}, 7: {7, 7}, 1: {1, 1}} {
		r := trainingRun{iterations: iterations}
		if got := [2]int{r.every(), r.end()}; got != want {
			t.Errorf("%d iterations: every, end %v, want %v", iterations, got, want)
		}
	}
}

// What is trained is the net of examples/glyphs, whose training batch alone is that of all ranks.
func TestTrainingFiles(t *testing.T) {
	folder := t.TempDir()
	source, err := os.ReadFile("../../examples/glyphs/cifar10_quick_train_test.prototxt")
	if err != nil {
		t.Fatal(err)
	}
	r := trainingRun{data: cifar10, scheme: "onebit", ranks: 4, batch: 13, iterations: 4000, setting: setting{0.002, 0.8}}
	path := filepath.Join(folder, "net.prototxt")
	if err := os.WriteFile(path, []byte(r.net(string(source), "/data")), 0o666); err != nil {
		t.Fatal(err)
	}
	solver, err := proto.ParseSolver("solver", []byte(r.solver(path)))
	if err != nil {
		t.Fatal(err)
	}
	if p := solver.Solver; p.GetNet() != path || p.GetMaxIter() != 4000 || p.GetTestInterval() != 50 || p.GetTestIter()[0] != 100 || p.GetBaseLr() != 0.002 || p.GetMomentum() != 0.8 {
		t.Error(p)
	}
	net, err := proto.ReadNet(path)
	if err != nil {
		t.Fatal(err)
	}
	batches := map[string]uint32{}
	for _, l := range net.Net.GetLayer() {
		if l.GetType() == "Data" {
			batches[l.GetDataParam().GetSource()] = l.GetDataParam().GetBatchSize()
			if m := l.GetTransformParam().GetMeanFile(); m != "/data/mean.binaryproto" {
				t.Error(m)
			}
		}
	}
	if d := cmp.Diff(map[string]uint32{"/data/train_lmdb": 52, "/data/test_lmdb": 100}, batches); d != "" {
		t.Error(d)
	}
}

// logged is a log with an iteration for each loss from a first one on, and a test before every other; the accuracy
// grows with the iterations.
func logged(first int, losses ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{\"event\":\"start\",\"version\":\"v1\",\"iter\":%d}\n", first)
	for i := first; i <= first+len(losses); i++ {
		if i%2 == 0 {
			fmt.Fprintf(&b, "{\"event\":\"test\",\"iter\":%d,\"scores\":[{\"name\":\"accuracy\",\"value\":%g},{\"name\":\"loss\",\"value\":%d}]}\n", i, float64(i)/8, 10-i)
		}
		if i < first+len(losses) {
			fmt.Fprintf(&b, "{\"event\":\"iteration\",\"iter\":%d,\"loss\":%s}\n", i, losses[i-first])
		}
	}
	return b.String()
}

// A row is a test, with the mean loss of the iterations since the one before. Of iterations that are there twice, as training
// went on from a checkpoint, the later hold.
func TestTrainingLog(t *testing.T) {
	r := trainingRun{figure: "poseidon-11", data: drawnDigits, scheme: "onebit", ranks: 4, batch: 25, iterations: 4, setting: caffes[0]}
	row := func(iteration int, loss, testLoss, failed float64) TrainingRow {
		return TrainingRow{"poseidon-11", "drawn digits", "onebit", 4, 25, 4, 0.001, 0.9, iteration, loss, testLoss, failed, "v1"}
	}
	nan := math.NaN()
	begin := row(0, nan, 10, 1)
	for _, tt := range []struct {
		log  string
		want []TrainingRow
		err  string
	}{
		{"", nil, ""},
		{logged(0, "4", "2", "1", "0.5"), []TrainingRow{begin, row(2, 3, 8, 0.75), row(4, 0.75, 6, 0.5)}, ""},
		{logged(0, "4", "2", "9", "9", "9") + logged(2, "1", "0.5"), []TrainingRow{begin, row(2, 3, 8, 0.75), row(4, 0.75, 6, 0.5)}, ""},
		{logged(0, "4", "2") + `{"event":"iteration","iter":3,"lo`, []TrainingRow{begin, row(2, 3, 8, 0.75)}, ""},
		{logged(0, "4", "2") + `{"event":"iteration","iter":3,"lo` + logged(2, "1", "0.5"), []TrainingRow{begin, row(2, 3, 8, 0.75), row(4, 0.75, 6, 0.5)}, ""},
		{logged(0, "4", "null"), []TrainingRow{begin, row(2, nan, 8, 0.75)}, ""},
		{logged(0, "4", "2") + logged(4, "1"), []TrainingRow{begin, row(2, 3, 8, 0.75)}, "no iteration 2"},
		{logged(0) + "mpirun: no\n", []TrainingRow{begin}, "the log of training: invalid"},
	} {
		got, err := r.read(strings.NewReader(tt.log))
		if d := cmp.Diff(tt.want, got, cmpopts.EquateNaNs()); d != "" || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s\n%s\n%v, want %q", tt.log, d, err, tt.err)
		}
		path := filepath.Join(t.TempDir(), "rows.csv")
		if err := writeTraining(path, got); err != nil {
			t.Fatal(err)
		}
		back, err := readTraining(path)
		if d := cmp.Diff(got, back, cmpopts.EquateNaNs()); d != "" || err != nil {
			t.Error(err, d)
		}
	}
}

// An error is a number of samples over another, to the digits of the file: three in a hundred are no more than 0.03.
func TestTrainingErrorIsRound(t *testing.T) {
	r := trainingRun{iterations: 4}
	rows, err := r.read(strings.NewReader(`{"event":"test","iter":0,"scores":[{"name":"accuracy","value":0.97}]}`))
	if err != nil || len(rows) != 1 || rows[0].Error != 0.03 {
		t.Error(rows, err)
	}
}

// Runs whose rows are there are not trained again; one that is interrupted or fails says where, and goes on in the same folder.
func TestTrainingIsMeasured(t *testing.T) {
	c := TrainingConfig{Name: "poseidon-11", Iterations: 4, Batch: 25, Out: filepath.Join(t.TempDir(), "rows.csv")}
	ctx, cancel := context.WithCancel(context.Background())
	var asked []string
	write := func(folder, text string) {
		f, err := os.OpenFile(filepath.Join(folder, logName), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
		if err == nil {
			_, err = f.WriteString(text)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	step := 0
	fake := func(_ context.Context, r trainingRun, folder string) error {
		asked = append(asked, fmt.Sprintf("%s %d", r.scheme, r.ranks))
		switch step {
		case 0: // exact is whole, the other stops
			if r.scheme == "poseidon" {
				write(folder, logged(0, "2", "1", "0.1", "0.1"))
				return nil
			}
			write(folder, logged(0, "2", "1"))
			cancel()
			return context.Canceled
		case 1:
			write(folder, logged(2))
			return errors.New("a rank is gone")
		case 2: // ends early without saying so
			return nil
		}
		write(folder, logged(2, "1", "null"))
		return nil
	}
	var out, log bytes.Buffer
	for _, want := range []string{
		"interrupted after iteration 2 of 4 (drawn digits, onebit on 4 ranks, 25 samples each, 4 iterations); the same command goes on", "1 runs failed", "1 runs failed", "",
	} {
		err := c.measure(ctx, fake, &out, &log)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("step %d: %v, want %q", step, err, want)
		}
		ctx = context.Background()
		step++
	}
	for _, want := range []string{"failed after iteration 2: a rank is gone", "has no test after iteration 2, of 4"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s\nno %q", log.String(), want)
		}
	}
	if want := []string{"poseidon 4", "onebit 4", "onebit 4", "onebit 4", "onebit 4"}; !slices.Equal(asked, want) {
		t.Errorf("%q", asked)
	}
	rows, err := readTraining(c.Out)
	if err != nil || len(rows) != 6 || rows[5].Scheme != "onebit" || !math.IsNaN(rows[5].Loss) || rows[5].Error != 0.5 {
		t.Error(rows, err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(c.Out), "rows-*")); left != nil {
		t.Errorf("%q are left", left)
	}
	asked = nil
	if err := c.measure(ctx, fake, io.Discard, io.Discard); err != nil || asked != nil {
		t.Error(asked, err)
	}
	picture, err := os.ReadFile(strings.TrimSuffix(c.Out, ".csv") + ".svg")
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(picture)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v\n%s", err, picture)
		}
	}
	text := string(picture)
	for _, want := range []string{">onebit, 4 ranks<", `class="line1"`, "drawn digits, 25 samples"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Error(text)
	}
}

// A run's line has after how many iterations its error was under levels for the first time.
func TestTrainingSummary(t *testing.T) {
	run := func(scheme string, errors ...float64) (rows []TrainingRow) {
		for i, e := range errors {
			rows = append(rows, TrainingRow{Scheme: scheme, Iteration: 10 * i, Error: e})
		}
		return rows
	}
	got := summarize(append(run("ps", 0.9, 0.3, 0.5, 0.02, 0.04), run("onebit", math.NaN(), 0.6)...))
	if len(got) != 2 || got[0].Under != [...]int{10, 10, 30, 30, -1} || got[0].Least != 0.02 || got[0].Last.Error != 0.04 {
		t.Errorf("%+v", got)
	}
	if got[1].Under != [...]int{-1, -1, -1, -1, -1} || got[1].Least != 0.6 {
		t.Errorf("%+v", got)
	}
	if s := drawTraining("nothing", nil); strings.Contains(s, "NaN") || strings.Contains(s, "Inf") {
		t.Error(s)
	}
}
