// Package port samples what a network port sends and receives in every interval of some
// milliseconds, by its interface's counters, as P3's figures 8 and 9 show it (Jayarajan et al.,
// SysML 2019, section 5.3, where bwm-ng does that every 10 ms):
//
//	w := port.Watcher{File: "/proc/net/dev", Interface: "eth0", Every: 10 * time.Millisecond, Rate: 1e9}
//	samples, err := w.Watch(ctx) // until ctx ends
//
// The counters of another network namespace are in /proc/PID/net/dev of a process there: whoever may read
// that need not enter it.
//
// It owns samples and their columns. It must not know what sends.
package port

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/scaffe/scaffe/internal/report"
)

// Sample is what passed the port in an interval.
type Sample struct {
	Unix           float64 // when the interval began, milliseconds since 1970
	Time           float64 // the same since the first began
	Length         float64 // milliseconds: a little more or less than was asked for, and times as much where the sampler was late
	Sent, Received int64   // bytes, with the headers that the interface counts
	Rate           float64 // of the port each way, bits a second; 0: not known
}

// SentShare is the part of its rate at which the port sent.
func (s Sample) SentShare() float64 { return s.share(s.Sent) }

// ReceivedShare is the part of its rate at which the port received.
func (s Sample) ReceivedShare() float64 { return s.share(s.Received) }

func (s Sample) share(n int64) float64 {
	if s.Rate == 0 || s.Length == 0 {
		return 0
	}
	return 8e3 * float64(n) / s.Length / s.Rate
}

// Columns are those of samples in a file.
var Columns = []report.Column[Sample]{
	{Name: "time_ms", Value: func(s Sample) any { return s.Time }},
	{Name: "unix_ms", Value: func(s Sample) any { return s.Unix }},
	{Name: "length_ms", Value: func(s Sample) any { return s.Length }},
	{Name: "sent_bytes", Value: func(s Sample) any { return s.Sent }},
	{Name: "received_bytes", Value: func(s Sample) any { return s.Received }},
	{Name: "sent_share", Value: func(s Sample) any { return report.Optional(s.SentShare(), s.Rate > 0) }},
	{Name: "received_share", Value: func(s Sample) any { return report.Optional(s.ReceivedShare(), s.Rate > 0) }},
	{Name: "rate_bits", Value: func(s Sample) any { return report.Optional(s.Rate, s.Rate > 0) }},
}

// Quiet is the share of a port's rate under which it counts as idle.
const Quiet = 0.05

// QuietShares returns in which part of the time the port sent, and received, at less than Quiet of
// its rate: an interval that is twice as long counts twice.
func QuietShares(samples []Sample) (sent, received float64) {
	all := 0.0
	for _, s := range samples {
		all += s.Length
		if s.SentShare() < Quiet {
			sent += s.Length
		}
		if s.ReceivedShare() < Quiet {
			received += s.Length
		}
	}
	if all == 0 {
		return 0, 0
	}
	return sent / all, received / all
}

// Watcher samples the counters of an interface.
type Watcher struct {
	File      string // in the form of /proc/net/dev
	Interface string // such as eth0
	Every     time.Duration
	Rate      float64 // as in Sample

	clock clock // nil: the machine's
}

// clock is replaced in tests.
type clock interface {
	now() time.Time
	wait(ctx context.Context, until time.Time)
}

// Watch samples until ctx ends, which is no error. With an error, such as where the counters have gone with
// their namespace, the samples up to then are returned too. Samples are a fixed time apart: one that is late is longer,
// and the next as much shorter; where the sampler is late by whole intervals, these are one sample.
func (w *Watcher) Watch(ctx context.Context) (samples []Sample, err error) {
	if w.Every <= 0 {
		return nil, fmt.Errorf("the interval of samples must be positive (got %v)", w.Every)
	}
	r, err := w.open()
	if err != nil {
		return nil, err
	}
	defer r.file.Close()
	sent, received, err := r.read()
	if err != nil {
		return nil, err
	}
	c := w.clock
	if c == nil {
		c = newPrompt()
	}
	begin := c.now()
	first, next := begin, begin
	for {
		next = next.Add(w.Every)
		c.wait(ctx, next)
		if ctx.Err() != nil { // the last interval was cut short
			return samples, nil
		}
		s, g, err := r.read()
		if err != nil {
			return samples, err
		}
		now := c.now()
		samples = append(samples, Sample{
			Unix: float64(begin.UnixMicro()) / 1e3, Time: report.Milliseconds(begin.Sub(first)), Length: report.Milliseconds(now.Sub(begin)),
			Sent: s - sent, Received: g - received, Rate: w.Rate,
		})
		begin, sent, received = now, s, g
		if late := now.Sub(next); late >= w.Every {
			next = next.Add(late.Truncate(w.Every))
		}
	}
}

// Check reports whether there are such counters, before a command is started that takes long.
func (w *Watcher) Check() error {
	r, err := w.open()
	if err != nil {
		return err
	}
	defer r.file.Close()
	_, _, err = r.read()
	return err
}

func (w *Watcher) open() (*reader, error) {
	file, err := os.Open(w.File)
	if err != nil {
		return nil, fmt.Errorf("counters of %s: %w", w.Interface, err)
	}
	return &reader{file: file, name: w.Interface}, nil
}

// reader reads counters from the same file again and again.
type reader struct {
	file *os.File
	name string
	buf  [16 << 10]byte
}

// read returns the bytes that the interface has sent and received.
func (r *reader) read() (sent, received int64, err error) {
	n, err := r.file.ReadAt(r.buf[:], 0)
	if n == 0 && err != nil {
		return 0, 0, fmt.Errorf("counters of %s: %w", r.name, err)
	}
	for line := range bytes.Lines(r.buf[:n]) {
		name, rest, found := bytes.Cut(line, []byte(":"))
		if !found || string(bytes.TrimSpace(name)) != r.name {
			continue
		}
		f := strings.Fields(string(rest))
		if len(f) < 9 {
			return 0, 0, fmt.Errorf("counters of %s in %s: %q is no line of /proc/net/dev", r.name, r.file.Name(), bytes.TrimSpace(line))
		}
		var err2 error
		received, err = strconv.ParseInt(f[0], 10, 64)
		sent, err2 = strconv.ParseInt(f[8], 10, 64)
		if err = errors.Join(err, err2); err != nil {
			return 0, 0, fmt.Errorf("counters of %s in %s: %w", r.name, r.file.Name(), err)
		}
		return sent, received, nil
	}
	return 0, 0, fmt.Errorf("no interface %s in %s", r.name, r.file.Name())
}
