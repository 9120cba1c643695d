package campaign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/internal/svg"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// training is a figure of the Poseidon paper (section 5), or of P3's (5.5), that shows how well a net is trained, iteration by iteration.
type training struct {
	figure, title string
	ranks         []int
	schemes       []string
	iterations    int
	settings      []setting // each scheme is trained with each, and the range of accuracy shown
}

// setting is what the solver is told.
type setting struct{ rate, momentum float64 }

// caffes is the setting of Caffe's CIFAR-10 quick.
var caffes = []setting{{0.001, 0.9}}

// trainings have the scheme of the paper's system, and in Poseidon's Figure 11 what it calls Poseidon-1bit. P3 does not say which
// five settings its Figure 11 has: here they are Caffe's, half and twice its rate, and less and more momentum.
var trainings = []training{
	{"poseidon-9", "Loss and test error of CIFAR-10 quick against iteration, by ranks", []int{1, 2, 4, 8}, []string{"poseidon"}, 2000, caffes},
	{"poseidon-11", "Loss and test error of CIFAR-10 quick against iteration, exact and 1-bit", []int{4}, []string{"poseidon", "onebit"}, 4000, caffes},
	{
		"p3-11", "Validation accuracy of P3 and DGC, CIFAR-10 quick, worst to best of five settings",
		[]int{4},
		[]string{P3, "dgc"},
		4000,
		[]setting{{0.001, 0.9}, {0.0005, 0.9}, {0.002, 0.9}, {0.001, 0.8}, {0.001, 0.95}},
	},
}

// P3 names what is no scheme of its own: ps in slices, with credit.
const P3 = "p3"

// ParseTrained reads the name of a scheme that a net is trained by, or P3.
func ParseTrained(word string) (string, error) {
	if strings.EqualFold(word, P3) {
		return P3, nil
	}
	scheme, err := coordinator.ParseScheme(word)
	return scheme.String(), err
}

// warmupPart is the part of dgc's iterations in which it warms up: four epochs of about 160 (Lin et al., section 4).
const warmupPart = 40

// arguments are those of scaffe train by which a net goes.
func (r *trainingRun) arguments() []string {
	switch r.scheme {
	case P3:
		return []string{"--scheme", "ps", "--slice", fmt.Sprint(int(coordinator.DefaultSlice))}
	case coordinator.DGC.String():
		return []string{"--scheme", r.scheme, "--warmup", fmt.Sprint(r.iterations / warmupPart)}
	}
	return []string{"--scheme", r.scheme}
}

const (
	paperBatch = 100 // of each worker: Table 3, "single-node batchsize"
	points     = 80  // of a curve, at least ten iterations apart
)

// Trainings lists the names of the figures that are trained, each with its title.
func Trainings() (names, titles []string) {
	for _, f := range trainings {
		names, titles = append(names, f.figure), append(titles, f.title)
	}
	return names, titles
}

// TrainingConfig says which part of a figure is trained; 0 and nil are the figure's own.
type TrainingConfig struct {
	Name       string
	Ranks      []int
	Schemes    []string
	Iterations int
	Batch      int    // of each rank, so that the global one grows with the ranks, as in the paper
	Quick      bool   // a tenth of the iterations, a quarter of the batch
	CIFAR10    string // the folder with the binary version of CIFAR-10; "": drawn digits
	Out        string // the file of the rows
}

// trainingRun is a run of scaffe train.
type trainingRun struct {
	figure     string
	data       images
	scheme     string
	ranks      int
	batch      int // of each rank
	iterations int
	setting
}

// images is a data set.
type images struct {
	name, key string // for people, and in names of files
	tests     int    // batches of 100
}

var (
	cifar10     = images{"CIFAR-10", "cifar10", 100}
	drawnDigits = images{"drawn digits", "glyphs", 20}
)

func (r *trainingRun) String() string {
	text := fmt.Sprintf("%s, %s on %s, %d samples each, %d iterations", r.data.name, r.scheme, svg.Count(r.ranks, "rank"), r.batch, r.iterations)
	if r.setting != caffes[0] {
		text += fmt.Sprintf(", rate %g, momentum %g", r.rate, r.momentum)
	}
	return text
}

// every is after how many iterations there is a point of the curves.
func (r *trainingRun) every() int { return min(r.iterations, max(10, r.iterations/points)) }

// end is the last of them.
func (r *trainingRun) end() int { return r.iterations - r.iterations%r.every() }

// runs returns the figure's runs in the order in which they are trained.
func (c *TrainingConfig) runs() (f *training, all []trainingRun, err error) {
	i := slices.IndexFunc(trainings, func(f training) bool { return f.figure == c.Name })
	if i < 0 {
		names, _ := Trainings()
		return nil, nil, fmt.Errorf("unknown figure %q: want one of %s", c.Name, strings.Join(names, ", "))
	}
	f = &trainings[i]
	r := trainingRun{figure: c.Name, data: drawnDigits, batch: paperBatch, iterations: f.iterations}
	if c.CIFAR10 != "" {
		r.data = cifar10
	}
	if c.Quick {
		r.batch, r.iterations = r.batch/4, r.iterations/10
	}
	if c.Batch > 0 {
		r.batch = c.Batch
	}
	if c.Iterations > 0 {
		r.iterations = c.Iterations
	}
	ranks, schemes := f.ranks, f.schemes
	if c.Ranks != nil {
		ranks = c.Ranks
	}
	if c.Schemes != nil {
		schemes = c.Schemes
	}
	for _, r.ranks = range ranks {
		for _, r.scheme = range schemes {
			for _, r.setting = range f.settings {
				all = append(all, r)
			}
		}
	}
	return f, all, nil
}

// trainer trains a run in a folder, where the log and checkpoints are.
type trainer func(ctx context.Context, r trainingRun, folder string) error

// Training trains the runs of a figure of the papers, their ranks within one process, since losses and errors do not
// depend on what carries messages: its rows go to c.Out, a picture of them beside it. root is the repository's, whose
// programs are built.
func Training(ctx context.Context, c TrainingConfig, root string, stdout, log io.Writer) error {
	program := filepath.Join(root, "bin", "scaffe")
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("%w: make build", err)
	}
	_, runs, err := c.runs()
	if err != nil {
		return err
	}
	data, err := runs[0].data.prepare(ctx, root, c.CIFAR10, log)
	if err != nil {
		return err
	}
	return c.measure(ctx, func(ctx context.Context, r trainingRun, folder string) error {
		return r.train(ctx, root, data, folder)
	}, stdout, log)
}

// prepare makes the data set if it is not there, and returns its folder.
func (i *images) prepare(ctx context.Context, root, cifar string, log io.Writer) (string, error) {
	program, folder := filepath.Join(root, "bin", "scaffe"), filepath.Join(root, "build", "bench", "data", i.key)
	mean := filepath.Join(folder, "mean.binaryproto") // the last to be written
	if _, err := os.Stat(mean); err == nil {
		return folder, nil
	}
	fmt.Fprintf(log, "making the data set in %s\n", folder)
	convert := []string{program, "data", i.key, "--force", "--out", folder}
	if cifar != "" {
		convert = append(convert, "--in", cifar)
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return "", err
	}
	for _, line := range [][]string{convert, {program, "data", "mean", "--in", filepath.Join(folder, "train_lmdb"), "--out", mean}} {
		if _, err := execute(ctx, os.Environ(), line); err != nil {
			return "", err
		}
	}
	return folder, nil
}

// train trains the run, from its newest checkpoint if it has one.
func (r *trainingRun) train(ctx context.Context, root, data, folder string) error {
	source, err := os.ReadFile(filepath.Join(root, "examples", "glyphs", "cifar10_quick_train_test.prototxt"))
	if err != nil {
		return err
	}
	net, solver := filepath.Join(folder, "net.prototxt"), filepath.Join(folder, "solver.prototxt")
	for path, text := range map[string]string{net: r.net(string(source), data), solver: r.solver(net)} {
		if err := atomicfile.Write(atomicfile.OS, path, []byte(text)); err != nil {
			return err
		}
	}
	checkpoints := filepath.Join(folder, "checkpoints")
	args := []string{
		filepath.Join(root, "bin", "scaffe"), "train", "--local", fmt.Sprint(r.ranks), "--solver", solver,
		"--log-json", filepath.Join(folder, logName), "--checkpoint", checkpoints, "--checkpoint-every", fmt.Sprint(10 * r.every()),
		"--progress", "never",
	}
	args = append(args, r.arguments()...)
	if sets, _ := filepath.Glob(filepath.Join(checkpoints, "*.manifest")); sets != nil {
		args = append(args, "--snapshot", checkpoints)
	}
	_, err = start(ctx, os.Environ(), args)
	return err
}

const logName = "log.jsonl"

// net is the net of examples/glyphs over a data set, with the batch of all ranks; tests keep their own.
func (r *trainingRun) net(text, data string) string {
	text = strings.ReplaceAll(text, "examples/glyphs/", data+"/")
	return strings.Replace(text, "batch_size: 100", fmt.Sprintf("batch_size: %d", r.batch*r.ranks), 1)
}

// solver is that of Caffe's CIFAR-10 quick.
func (r *trainingRun) solver(net string) string {
	return fmt.Sprintf(`net: %q
test_iter: %d
test_interval: %d
base_lr: %[5]g
momentum: %[6]g
weight_decay: 0.004
lr_policy: "fixed"
display: %[3]d
max_iter: %d
snapshot_after_train: false
random_seed: 1
`, net, r.data.tests, r.every(), r.iterations, r.rate, r.momentum)
}

// measure trains the runs that there are no rows of yet.
func (c *TrainingConfig) measure(ctx context.Context, train trainer, stdout, log io.Writer) error {
	f, runs, err := c.runs()
	if err != nil {
		return err
	}
	rows, err := readTraining(c.Out)
	if err != nil {
		return err
	}
	failed := 0
	for i, r := range runs {
		if slices.ContainsFunc(rows, r.has) {
			continue
		}
		fmt.Fprintf(log, "%d of %d: %v\n", i+1, len(runs), &r)
		began := time.Now()
		curve, err := r.curve(ctx, train, r.folder(c.Out))
		switch at := last(curve).Iteration; {
		case ctx.Err() != nil:
			return fmt.Errorf("interrupted after iteration %d of %d (%v); the same command goes on from its newest checkpoint", at, r.iterations, &r)
		case err != nil:
			failed++
			fmt.Fprintf(log, "  failed after iteration %d: %v\n", at, err)
			continue
		}
		fmt.Fprintf(log, "  error %.4g after %v\n", last(curve).Error, time.Since(began).Round(time.Second))
		rows = append(rows, curve...)
		if err := writeTraining(c.Out, rows); err != nil {
			return err
		}
		if err := os.RemoveAll(r.folder(c.Out)); err != nil {
			return err
		}
	}
	rows = slices.DeleteFunc(rows, func(row TrainingRow) bool {
		return !slices.ContainsFunc(runs, func(r trainingRun) bool { return r.of(row) })
	})
	picture := strings.TrimSuffix(c.Out, ".csv") + ".svg"
	draw := drawTraining
	if len(f.settings) > 1 {
		draw = drawRanges
	}
	if err := atomicfile.Write(atomicfile.OS, picture, []byte(draw(f.figure+": "+f.title, rows))); err != nil {
		return err
	}
	t := report.Table[TrainingSummary]{Columns: summaryColumns, Rows: summarize(rows)}
	if err := t.Write(stdout, report.Text); err != nil {
		return err
	}
	if len(f.settings) > 1 {
		fmt.Fprintln(stdout)
		t := report.Table[accuracyRange]{Columns: rangeColumns, Rows: ranges(rows)}
		if err := t.Write(stdout, report.Text); err != nil {
			return err
		}
	}
	fmt.Fprintf(log, "rows: %s, picture: %s\n", c.Out, picture)
	if failed > 0 {
		return fmt.Errorf("%d runs failed, see above; the same command tries them again", failed)
	}
	return nil
}

// curve trains the run to its end, and returns its rows; with an error those that there are so far.
func (r *trainingRun) curve(ctx context.Context, train trainer, folder string) ([]TrainingRow, error) {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, err
	}
	trained := train(ctx, *r, folder)
	file, err := os.Open(filepath.Join(folder, logName))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && trained != nil {
			err = trained
		}
		return nil, err
	}
	defer file.Close()
	curve, err := r.read(file)
	if trained != nil || err != nil {
		return curve, errors.Join(trained, err)
	}
	if at := last(curve).Iteration; at < r.end() {
		return curve, fmt.Errorf("the log in %s has no test after iteration %d, of %d", folder, at, r.iterations)
	}
	return curve, nil
}

// folder is where the run's log and checkpoints are until it is done.
func (r *trainingRun) folder(out string) string {
	name := fmt.Sprintf("%s-%s-%s-%dx%d-%d", strings.TrimSuffix(out, ".csv"), r.data.key, r.scheme, r.ranks, r.batch, r.iterations)
	if r.setting != caffes[0] {
		name += fmt.Sprintf("-%g-%g", r.rate, r.momentum)
	}
	return name
}

// of reports whether a row is one of the run's.
func (r *trainingRun) of(row TrainingRow) bool {
	return row.Figure == r.figure && row.Data == r.data.name && row.Scheme == r.scheme && row.Ranks == r.ranks && row.Batch == r.batch && row.Iterations == r.iterations &&
		setting{row.Rate, row.Momentum} == r.setting
}

// has reports whether a row is the run's last.
func (r *trainingRun) has(row TrainingRow) bool { return r.of(row) && row.Iteration == r.end() }

// last returns the last row, or none.
func last(rows []TrainingRow) (row TrainingRow) {
	if len(rows) > 0 {
		row = rows[len(rows)-1]
	}
	return row
}
