package models

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/caffe/proto"
)

// The table in docs/models.md has every net, with the numbers that it has.
func TestDocsTable(t *testing.T) {
	text, err := os.ReadFile("../docs/models.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) == 9 {
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows[cells[1]] = cells[2:7]
		}
	}
	check := func(row, name string, phase proto.Phase) {
		n := build(t, name, phase, 1, 0, true)
		c, image := Total(Costs(n)), n.Blob("data")
		want := fmt.Sprintf("%s | %s | %s | %.2f × 10⁹ | %d × %d × %d",
			commas(c.Learned), commas(4*c.Learned), commas(c.Statistics), float64(c.MultiplyAdds)/1e9,
			image.Dim(1), image.Dim(2), image.Dim(3))
		if got := strings.Join(rows[row], " | "); got != want {
			t.Errorf("docs/models.md: the row of %s is\n\t%s\nwant\n\t%s", row, got, want)
		}
	}
	for _, name := range Names() {
		check("`"+name+"`", name, proto.Phase_TRAIN)
		if nets[name].train != nets[name].test {
			check("`"+name+"` in the test phase", name, proto.Phase_TEST)
		}
	}
}

// commas writes a number with a comma before every three digits.
func commas(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", commas(n/1000), n%1000)
}
