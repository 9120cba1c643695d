package campaign

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/scaffe/scaffe/internal/report"
)

// TrainingRow is a point of a run's curves: what its net has learned after so many iterations.
type TrainingRow struct {
	Figure, Data, Scheme string
	Ranks                int
	Batch                int // of each rank
	Iterations           int // of the whole run
	Rate, Momentum       float64
	Iteration            int // how many are done
	// Loss is that of training, the mean over the iterations since the row before: NaN in the first. Like the others it is
	// NaN too where it was not finite.
	Loss float64
	// TestLoss and Error are of all test samples; the error is the part that is classified wrongly, in [0, 1].
	TestLoss, Error float64
	Version         string
}

// trainingColumns are the columns of the file, in the order in which parseTraining reads them.
var trainingColumns = []report.Column[TrainingRow]{
	{Name: "figure", Value: func(r TrainingRow) any { return r.Figure }},
	{Name: "data", Value: func(r TrainingRow) any { return r.Data }},
	{Name: "scheme", Value: func(r TrainingRow) any { return r.Scheme }},
	{Name: "ranks", Value: func(r TrainingRow) any { return r.Ranks }},
	{Name: "batch", Value: func(r TrainingRow) any { return r.Batch }},
	{Name: "iterations", Value: func(r TrainingRow) any { return r.Iterations }},
	{Name: "base_lr", Value: func(r TrainingRow) any { return r.Rate }},
	{Name: "momentum", Value: func(r TrainingRow) any { return r.Momentum }},
	{Name: "iteration", Value: func(r TrainingRow) any { return r.Iteration }},
	{Name: "loss", Value: func(r TrainingRow) any { return r.Loss }},
	{Name: "test_loss", Value: func(r TrainingRow) any { return r.TestLoss }},
	{Name: "error", Value: func(r TrainingRow) any { return r.Error }},
	{Name: "version", Value: func(r TrainingRow) any { return r.Version }},
}

// writeTraining writes rows to a file, which appears whole.
func writeTraining(path string, rows []TrainingRow) error {
	return writeRows(path, trainingColumns, rows)
}

// readTraining reads what writeTraining has written; a file that is not there has no rows.
func readTraining(path string) ([]TrainingRow, error) {
	return readRows(path, trainingColumns, func(c *cells) (r TrainingRow) {
		r.Figure, r.Data, r.Scheme = c.text(), c.text(), c.text()
		r.Ranks, r.Batch, r.Iterations, r.Rate, r.Momentum, r.Iteration = c.whole(), c.whole(), c.whole(), c.number(), c.number(), c.whole()
		r.Loss, r.TestLoss, r.Error, r.Version = c.orNaN(), c.orNaN(), c.orNaN(), c.text()
		return r
	})
}

// read reads the log of a run (scaffe train --log-json). Where training went on from a checkpoint, iterations stand in it
// twice; the later ones hold. A line that was cut off, behind which another run may have gone on, says nothing.
func (r *trainingRun) read(log io.Reader) (rows []TrainingRow, err error) {
	losses := map[int]float64{}
	version := ""
	for lines := bufio.NewReader(log); ; {
		var e struct {
			Event, Version string
			Iter           int
			Loss           *float64
			Scores         []struct {
				Name  string
				Value *float64
			}
		}
		line, end := lines.ReadBytes('\n')
		if end != nil && !errors.Is(end, io.EOF) {
			return rows, fmt.Errorf("the log of training: %w", end)
		}
		if err := json.Unmarshal(line, &e); err != nil {
			if len(line) > 0 && line[0] != '{' {
				return rows, fmt.Errorf("the log of training: %w", err)
			}
			e.Event = ""
		}
		switch e.Event {
		case "start":
			version = e.Version
		case "iteration":
			losses[e.Iter] = orNaN(e.Loss)
		case "test":
			row := TrainingRow{
				Figure: r.figure, Data: r.data.name, Scheme: r.scheme, Ranks: r.ranks, Batch: r.batch, Iterations: r.iterations, Rate: r.rate, Momentum: r.momentum,
				Iteration: e.Iter, TestLoss: math.NaN(), Error: math.NaN(), Version: version,
			}
			for _, s := range e.Scores {
				switch s.Name {
				case "accuracy":
					row.Error = math.Round((1-orNaN(s.Value))*1e6) / 1e6 // as in the file: 1 - 0.97 is 0.03
				case "loss":
					row.TestLoss = orNaN(s.Value)
				}
			}
			rows = slices.DeleteFunc(rows, func(before TrainingRow) bool { return before.Iteration >= e.Iter })
			if row.Loss, err = mean(losses, last(rows).Iteration, e.Iter); err != nil {
				return rows, err
			}
			rows = append(rows, row)
		}
		if end != nil {
			return rows, nil
		}
	}
}

// mean returns the mean of the losses of iterations from first up to before end, NaN of none.
func mean(losses map[int]float64, first, end int) (float64, error) {
	sum := 0.0
	for i := first; i < end; i++ {
		loss, there := losses[i]
		if !there {
			return 0, fmt.Errorf("the log of training has no iteration %d", i)
		}
		sum += loss
	}
	return sum / float64(end-first), nil
}

// orNaN is what the log has for a number, null for one that is not finite.
func orNaN(x *float64) float64 {
	if x == nil {
		return math.NaN()
	}
	return *x
}

// TrainingSummary is a run in a line.
type TrainingSummary struct {
	Last  TrainingRow
	Least float64 // of the errors
	// Under is after how many iterations the error is no more than each of Levels for the first time, -1: never.
	Under [len(Levels)]int
}

// Levels are the errors that the paper speaks of (section 5.4), and lower ones.
var Levels = [...]float64{0.5, 0.3, 0.1, 0.03, 0.01}

var summaryColumns = func() []report.Column[TrainingSummary] {
	columns := []report.Column[TrainingSummary]{
		{Name: "data", Left: true, Value: func(s TrainingSummary) any { return s.Last.Data }},
		{Name: "scheme", Left: true, Value: func(s TrainingSummary) any { return s.Last.Scheme }},
		{Name: "ranks", Value: func(s TrainingSummary) any { return s.Last.Ranks }},
		{Name: "batch", Value: func(s TrainingSummary) any { return s.Last.Batch }},
		{Name: "base_lr", Title: "rate", Value: func(s TrainingSummary) any { return shortest(s.Last.Rate) }},
		{Name: "momentum", Value: func(s TrainingSummary) any { return shortest(s.Last.Momentum) }},
	}
	for i, level := range Levels {
		columns = append(columns, report.Column[TrainingSummary]{
			Name: fmt.Sprintf("error_%g", level), Title: fmt.Sprintf("error %g after", level),
			Value: func(s TrainingSummary) any { return report.Optional(float64(s.Under[i]), s.Under[i] >= 0) },
		})
	}
	return append(columns,
		report.Column[TrainingSummary]{Name: "iterations", Value: func(s TrainingSummary) any { return s.Last.Iteration }},
		report.Column[TrainingSummary]{Name: "error", Digits: 4, Value: func(s TrainingSummary) any { return s.Last.Error }},
		report.Column[TrainingSummary]{Name: "least_error", Title: "least", Digits: 4, Value: func(s TrainingSummary) any { return s.Least }},
		report.Column[TrainingSummary]{Name: "loss", Digits: 5, Value: func(s TrainingSummary) any { return s.Last.Loss }},
		report.Column[TrainingSummary]{Name: "test_loss", Title: "test loss", Digits: 5, Value: func(s TrainingSummary) any { return s.Last.TestLoss }},
	)
}()

// summarize returns a line for each run.
func summarize(rows []TrainingRow) (all []TrainingSummary) {
	for _, run := range curves(rows) {
		s := TrainingSummary{Last: last(run), Least: math.Inf(1)}
		for i, level := range Levels {
			s.Under[i] = -1
			if k := slices.IndexFunc(run, func(r TrainingRow) bool { return r.Error <= level }); k >= 0 {
				s.Under[i] = run[k].Iteration
			}
		}
		for _, r := range run {
			if r.Error < s.Least { // not where it is not finite
				s.Least = r.Error
			}
		}
		all = append(all, s)
	}
	return all
}

// curves divides rows by their runs, in the order in which these appear.
func curves(rows []TrainingRow) (all [][]TrainingRow) {
	for _, r := range rows {
		i := slices.IndexFunc(all, func(c []TrainingRow) bool {
			return c[0].Data == r.Data && c[0].Scheme == r.Scheme && c[0].Ranks == r.Ranks && c[0].Batch == r.Batch && c[0].Iterations == r.Iterations &&
				c[0].Rate == r.Rate && c[0].Momentum == r.Momentum
		})
		if i < 0 {
			i = len(all)
			all = append(all, nil)
		}
		all[i] = append(all[i], r)
	}
	return all
}
