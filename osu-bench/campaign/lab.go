package campaign

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// labBurst is how long the lab's links may send faster than their rate after a pause (hostfiles/lab, limits). A call of tens of
// kilobytes that follows one that used other links passes as if there were no limit; in a program that goes on with it, it does not.
const labBurst = 4 * time.Millisecond

// lab is hostfiles/lab, and in which shape it is up.
type lab struct {
	path   string
	log    io.Writer
	layout Layout // no nodes: down
	rate   string
}

func newLab(root string, log io.Writer) lab {
	return lab{path: filepath.Join(root, "hostfiles", "lab"), log: log}
}

// up brings it up for a layout, with links of a rate such as 1gbit.
func (l *lab) up(ctx context.Context, want Layout, rate string) error {
	if l.layout.Nodes == want.Nodes && l.layout.PPN >= want.PPN && l.rate == rate {
		return nil
	}
	l.down()
	_, err := execute(ctx, os.Environ(), []string{l.path, "up", "--nodes", fmt.Sprint(want.Nodes), "--ppn", fmt.Sprint(want.PPN), "--rate", rate})
	if err == nil {
		l.layout, l.rate = want, rate
	}
	return err
}

func (l *lab) down() {
	if l.layout.Nodes == 0 {
		return
	}
	l.layout = Layout{}
	if _, err := execute(context.Background(), os.Environ(), []string{l.path, "down"}); err != nil {
		fmt.Fprintf(l.log, "  failed: %v\n", err)
	}
}
