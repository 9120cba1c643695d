package progress

import (
	"strings"
	"testing"
)

func TestWanted(t *testing.T) {
	for when, want := range map[string]bool{"always": true, "never": false, "auto": OnTerminal()} {
		if got, err := Wanted(when); got != want || err != nil {
			t.Errorf("%s: %v, %v", when, got, err)
		}
	}
	if _, err := Wanted("sometimes"); err == nil || !strings.Contains(err.Error(), `invalid --progress "sometimes": want auto, always or never`) {
		t.Error(err)
	}
}
