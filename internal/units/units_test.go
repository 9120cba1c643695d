package units_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/scaffe/scaffe/internal/units"
)

func Example() {
	n, err := units.ParseBytes("512K")
	fmt.Println(n, units.FormatBytes(n), err)
	_, err = units.ParseBytes("1.5M")
	fmt.Println(err)
	// Output:
	// 524288 512K <nil>
	// invalid size "1.5M": want bytes such as 65536, 512K or 1M
}

func TestBytes(t *testing.T) {
	for text, n := range map[string]int{"0": 0, "17": 17, "512K": 512 << 10, "64m": 64 << 20, "3G": 3 << 30} {
		if got, err := units.ParseBytes(text); err != nil || got != n {
			t.Errorf("%q is %d (%v), not %d", text, got, err, n)
		}
		if back, err := units.ParseBytes(units.FormatBytes(n)); err != nil || back != n {
			t.Errorf("%d is written as %q", n, units.FormatBytes(n))
		}
	}
	for _, text := range []string{"", "K", "-1", "1.5M", "99999999999G", "1T"} {
		if n, err := units.ParseBytes(text); err == nil {
			t.Errorf("%q is read as %d", text, n)
		}
	}
}

func TestRough(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		0: 0, 7: 7, 999: 999, 1004: 1000, 1234567: 1230000, 999999 * time.Microsecond: time.Second, 61234 * time.Millisecond: 61200 * time.Millisecond,
	} {
		if got := units.Rough(d); got != want {
			t.Errorf("%v is about %v, not %v", d, got, want)
		}
	}
}
