package port

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// device is a folder with counters that a test changes, and the time.
type device struct {
	t       *testing.T
	path    string
	at      time.Time
	end     func()
	moments []moment
}

// moment is how late the sampler wakes, and what the interface has counted by then.
type moment struct {
	late           time.Duration
	sent, received int64
}

func newDevice(t *testing.T, moments ...moment) *device {
	d := &device{t: t, path: filepath.Join(t.TempDir(), "dev"), at: time.UnixMilli(1_000_000), moments: moments}
	d.count(5000, 7000)
	return d
}

// count writes the counters in the form of /proc/net/dev.
func (d *device) count(sent, received int64) {
	d.write(fmt.Sprintf("Inter-|   Receive                                                |  Transmit\n"+
		" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n"+
		"    lo:  900  9    0    0    0     0          0         0   901  9    0    0    0     0       0          0\n"+
		"  eth0: %d  80    0    0    0     0          0         0   %d  90    0    0    0     0       0          0\n", received, sent))
}

func (d *device) write(text string) {
	if err := os.WriteFile(d.path, []byte(text), 0o666); err != nil {
		d.t.Fatal(err)
	}
}

func (d *device) now() time.Time { return d.at }

// wait goes on to the next moment; after the last one the watch ends.
func (d *device) wait(_ context.Context, until time.Time) {
	if len(d.moments) == 0 {
		d.end()
		return
	}
	m := d.moments[0]
	d.moments = d.moments[1:]
	d.at = until.Add(m.late)
	if m.sent < 0 {
		d.write("Inter-|\n")
		return
	}
	d.count(m.sent, m.received)
}

func (d *device) watch() ([]Sample, error) {
	ctx, cancel := context.WithCancel(d.t.Context())
	defer cancel()
	d.end = cancel
	w := Watcher{File: d.path, Interface: "eth0", Every: 10 * time.Millisecond, Rate: 1e9, clock: d}
	return w.Watch(ctx)
}

// What the counters have grown by is the interval's, over the time that really passed; a late sample makes the next one
// shorter, and one that is late by whole intervals stands for all of them.
func TestWatch(t *testing.T) {
	d := newDevice(t, moment{0, 5000 + 1_250_000, 7000}, moment{2 * time.Millisecond, 1_255_000, 7000 + 750_000}, moment{0, 1_256_000, 757_000}, moment{25 * time.Millisecond, 1_256_000, 757_035})
	got, err := d.watch()
	want := []Sample{
		{1_000_000, 0, 10, 1_250_000, 0, 1e9},
		{1_000_010, 10, 12, 0, 750_000, 1e9},
		{1_000_022, 22, 8, 1000, 0, 1e9},
		{1_000_030, 30, 35, 0, 35, 1e9},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if got[0].SentShare() != 1 || got[1].ReceivedShare() != 0.5 || got[2].SentShare() != 0.001 {
		t.Error(got[0].SentShare(), got[1].ReceivedShare(), got[2].SentShare())
	}
	if sent, received := QuietShares(got); sent != 55.0/65 || received != 53.0/65 {
		t.Error(sent, received)
	}
	if sent, received := QuietShares(nil); sent != 0 || received != 0 {
		t.Error(sent, received)
	}
	if (Sample{Length: 10, Sent: 1}).SentShare() != 0 {
		t.Error("a share of a rate that is not known")
	}
	// After a late sample the next ends on the grid of 10 ms again.
	d = newDevice(t, moment{25 * time.Millisecond, 5000, 7000}, moment{0, 5000, 7000})
	got, err = d.watch()
	if err != nil || len(got) != 2 || got[1].Time != 35 || got[1].Length != 5 {
		t.Errorf("%+v, %v", got, err)
	}
}

// Counters that go leave the samples so far; those that are none say what is there.
func TestWatchErrors(t *testing.T) {
	d := newDevice(t, moment{0, 6000, 7000}, moment{0, -1, 0})
	got, err := d.watch()
	if err == nil || !strings.Contains(err.Error(), "no interface eth0 in "+d.path) || len(got) != 1 || got[0].Sent != 1000 {
		t.Errorf("%+v, %v", got, err)
	}
	for text, says := range map[string]string{
		"":                              "counters of eth0: ",
		"eth0: 1 2 3\n":                 `"eth0: 1 2 3" is no line of /proc/net/dev`,
		"eth0: x 2 3 4 5 6 7 8 9 10\n":  `parsing "x"`,
		"eth0: 1 2 3 4 5 6 7 8 y 10\n":  `parsing "y"`,
		"eth01: 1 2 3 4 5 6 7 8 9 10\n": "no interface eth0",
	} {
		d := newDevice(t)
		d.write(text)
		if _, err := d.watch(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %s", text, err, says)
		}
		if err := (&Watcher{File: d.path, Interface: "eth0"}).Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %s", text, err, says)
		}
	}
	w := Watcher{File: filepath.Join(t.TempDir(), "gone"), Interface: "eth0", Every: time.Millisecond}
	if _, err := w.Watch(t.Context()); err == nil || !strings.Contains(err.Error(), "counters of eth0: open ") {
		t.Error(err)
	}
	if err := w.Check(); err == nil || !strings.Contains(err.Error(), "counters of eth0: open ") {
		t.Error(err)
	}
	if err := (&Watcher{File: newDevice(t).path, Interface: "lo"}).Check(); err != nil {
		t.Error(err)
	}
	w.Every = 0
	if _, err := w.Watch(t.Context()); err == nil || !strings.Contains(err.Error(), "must be positive") {
		t.Error(err)
	}
}
