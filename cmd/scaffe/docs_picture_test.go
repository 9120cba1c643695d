package main

import (
	"fmt"
	"html"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/img/house.svg is drawn from the table of packages in
// docs/architecture.md and from the numbers of "One gradient's way" there;
// -rewrite draws it again.
func TestDocsPackagesPicture(t *testing.T) {
	const file = "../../docs/img/house.svg"
	got := drawPackages(packageGroups(t), gradientSteps(t))
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s does not show docs/architecture.md any more: go test ./cmd/scaffe -run PackagesPicture -rewrite, and look at it", file)
	}
}

// group is a group of packages: its top folders, each with those below it.
type group struct {
	name string
	tops []*top
}

type top struct {
	name  string
	owns  string // up to the first semicolon
	below []string
	steps []step
}

// step is a number of the way, and what is called there.
type step struct {
	number int
	call   string
}

// packageGroups reads the table: a row in bold begins a group, or continues
// one that was begun before.
func packageGroups(t *testing.T) []*group {
	t.Helper()
	bold := regexp.MustCompile(`^\*\*(.+)\*\*$`)
	var groups []*group
	var current *group
	for _, row := range table(t, "architecture.md") {
		if m := bold.FindStringSubmatch(row[0]); m != nil {
			i := slices.IndexFunc(groups, func(g *group) bool { return g.name == m[1] })
			if current = (&group{name: m[1]}); i >= 0 {
				current = groups[i]
				groups = slices.Delete(groups, i, i+1)
			}
			groups = append(groups, current)
			continue
		}
		if current == nil || len(row) != 3 {
			continue
		}
		for _, m := range regexp.MustCompile("`([a-z0-9/_-]+)`").FindAllStringSubmatch(row[0], -1) {
			name, below, _ := strings.Cut(m[1], "/")
			i := slices.IndexFunc(current.tops, func(p *top) bool { return p.name == name })
			if i < 0 {
				i = len(current.tops)
				current.tops = append(current.tops, &top{name: name})
			}
			if below == "" && !strings.Contains(row[1], "one family") {
				current.tops[i].owns, _, _ = strings.Cut(row[1], ";")
			} else if !strings.Contains(below, "/") && !strings.HasSuffix(below, "test") {
				current.tops[i].below = append(current.tops[i].below, below)
			}
		}
		if slices.ContainsFunc(row, func(c string) bool { return strings.Contains(c, "`cmd/scaffe`") }) {
			break // the last row
		}
	}
	if len(groups) < 4 {
		t.Fatalf("%d groups in the table of docs/architecture.md", len(groups))
	}
	return groups
}

// gradientSteps are the calls that the numbers of the way stand at, by top
// folder; the text of the way names each.
func gradientSteps(t *testing.T) map[string][]step {
	t.Helper()
	steps := map[string][]step{
		"caffe":       {{1, "Backward"}, {6, "Update.Apply"}},
		"train":       {{2, "afterBackward"}, {8, "beforeForward"}},
		"exchange":    {{2, "AfterBackward"}, {6, "do"}},
		"syncer":      {{2, "Push"}, {7, "Pull"}},
		"nbc":         {{3, "admit"}, {4, "RecvBorrow"}},
		"kernels":     {{5, "Reduce"}},
		"collectives": {{0, "ReduceInit"}},
	}
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, way, _ := strings.Cut(string(text), "## One gradient's way")
	way, _, _ = strings.Cut(way, "\n## ")
	for name, ss := range steps {
		for _, s := range ss {
			if !regexp.MustCompile("`[^`]*\\b" + regexp.QuoteMeta(s.call) + "`").MatchString(way) {
				t.Errorf("One gradient's way does not name %s, which the picture shows in %s", s.call, name)
			}
		}
	}
	return steps
}

const (
	pictureWidth = 1080
	marginLeft   = 140 // for the names of groups
	boxGap       = 12
	lineHeight   = 17
)

// textWidth is about how wide a text is in pixels.
func textWidth(s string, size float64) float64 { return 0.54 * size * float64(len([]rune(s))) }

// box is a top folder, laid out.
type box struct {
	*top
	lines   []string // of what it owns
	folders []string // of the packages below it
	w, h    float64
}

// wrapped cuts words into lines of at most width pixels.
func wrapped(words []string, width float64) []string {
	var lines []string
	for _, w := range words {
		if n := len(lines); n > 0 && textWidth(lines[n-1]+" "+w, 12) <= width {
			lines[n-1] += " " + w
		} else {
			lines = append(lines, w)
		}
	}
	return lines
}

func layOut(p *top, steps []step) box {
	b := box{top: p}
	b.steps = steps
	b.w = textWidth(p.name, 15)
	b.lines = wrapped(strings.Fields(strings.ReplaceAll(p.owns, "`", "")), 148)
	b.folders = wrapped(p.below, 148)
	for _, l := range append(b.folders, b.lines...) {
		b.w = max(b.w, textWidth(l, 12))
	}
	for _, s := range steps {
		b.w = max(b.w, 24+textWidth(s.call, 12))
	}
	b.w += 28
	b.h = 34 + lineHeight*float64(len(b.lines)+len(b.folders)) + 22*float64(len(steps))
	return b
}

// drawPackages returns the picture.
func drawPackages(groups []*group, steps map[string][]step) string {
	var body strings.Builder
	y := 20.0
	for _, g := range groups {
		var rows [][]box
		x := pictureWidth + 1.0
		for _, p := range g.tops {
			b := layOut(p, steps[p.name])
			if x+b.w > pictureWidth-20 {
				rows, x = append(rows, nil), marginLeft
			}
			x += b.w + boxGap
			rows[len(rows)-1] = append(rows[len(rows)-1], b)
		}
		begin := y
		y += boxGap
		for _, row := range rows {
			h, x := 0.0, float64(marginLeft)
			for _, b := range row {
				h = max(h, b.h)
			}
			for _, b := range row {
				drawBox(&body, b, x, y, h)
				x += b.w + boxGap
			}
			y += h + boxGap
		}
		fmt.Fprintf(&body, "<text class=\"group\" x=\"34\" y=\"%.0f\">%s</text>\n", begin+32, html.EscapeString(g.name))
		fmt.Fprintf(&body, "<path class=\"rule\" d=\"M20 %.0fH%d\"/>\n", y+4, pictureWidth-20)
		y += 10
	}
	height := y + 26
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" width=\"%d\" height=\"%.0f\" role=\"img\">\n", pictureWidth, height, pictureWidth, height)
	b.WriteString(`<!-- Code generated by go test ./cmd/scaffe -run PackagesPicture -rewrite. DO NOT EDIT. -->
<title>The packages in their groups, and the way of one gradient through them</title>
<style>
.back{fill:#fcfcfd;stroke:#dcdce3}.box{fill:#fff;stroke:#c3c5d0}.rule{stroke:#e4e5eb}
text{font-family:Inter,"Segoe UI","Helvetica Neue",Arial,sans-serif;fill:#686b7a;font-size:12px}
.name{font-weight:600;font-size:15px;fill:#1b1b1f}.group{font-weight:600;font-size:13px;fill:#3d3f4b}.folders{fill:#2b6cb0}
.badge{fill:#c8354a}.number{fill:#fff;font-weight:600;font-size:11px;text-anchor:middle}.call{fill:#a52238;font-weight:600}
@media (prefers-color-scheme:dark){.back{fill:#17181c;stroke:#33353d}.box{fill:#1f2127;stroke:#484b57}.rule{stroke:#2b2d34}
text{fill:#a3a6b4}.name{fill:#f1f1f4}.group{fill:#cfd1da}.folders{fill:#7db2ea}.call{fill:#f08a9a}}
</style>
`)
	fmt.Fprintf(&b, "<rect class=\"back\" x=\".5\" y=\".5\" width=\"%d\" height=\"%.0f\" rx=\"10\"/>\n", pictureWidth-1, height-1)
	b.WriteString(body.String())
	fmt.Fprintf(&b, "<text x=\"34\" y=\"%.0f\">A group uses only groups above it (all may emit events to trace). Numbers: the way of one gradient, in docs/architecture.md.</text>\n", height-14)
	b.WriteString("</svg>\n")
	return b.String()
}

func drawBox(w *strings.Builder, b box, x, y, h float64) {
	fmt.Fprintf(w, "<rect class=\"box\" x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\" rx=\"6\"/>\n", x, y, b.w, h)
	fmt.Fprintf(w, "<text class=\"name\" x=\"%.0f\" y=\"%.0f\">%s</text>\n", x+12, y+22, b.name)
	at := y + 22
	for _, l := range b.lines {
		at += lineHeight
		fmt.Fprintf(w, "<text x=\"%.0f\" y=\"%.0f\">%s</text>\n", x+12, at, html.EscapeString(l))
	}
	for _, l := range b.folders {
		at += lineHeight
		fmt.Fprintf(w, "<text class=\"folders\" x=\"%.0f\" y=\"%.0f\">%s</text>\n", x+12, at, l)
	}
	at += 4
	for _, s := range b.steps {
		at += 20
		number := fmt.Sprint(s.number)
		if s.number == 0 {
			number = "·"
		}
		fmt.Fprintf(w, "<circle class=\"badge\" cx=\"%.0f\" cy=\"%.0f\" r=\"8\"/><text class=\"number\" x=\"%.0f\" y=\"%.0f\">%s</text>", x+20, at-4, x+20, at, number)
		fmt.Fprintf(w, "<text class=\"call\" x=\"%.0f\" y=\"%.0f\">%s</text>\n", x+34, at, s.call)
	}
}
