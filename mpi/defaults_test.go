package mpi

import (
	"os"
	"testing"
)

// What the user or mpirun has set stays; the rest is there for the library.
func TestDefaults(t *testing.T) {
	for i, d := range defaults {
		want := d.value
		t.Setenv(d.name, "own")
		if i%2 == 0 {
			if err := os.Unsetenv(d.name); err != nil {
				t.Fatal(err)
			}
		} else {
			want = "own"
		}
		if err := setDefaults(); err != nil {
			t.Fatal(err)
		}
		if got := os.Getenv(d.name); got != want {
			t.Errorf("%s is %q, want %q", d.name, got, want)
		}
	}
}
